"""Your own table or images: which activation is better on them, found as a study made in memory."""
