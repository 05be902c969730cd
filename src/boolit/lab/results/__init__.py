"""What finished runs leave and what follows from it: the store, its export, and the statistics."""
