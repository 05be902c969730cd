"""I-RAVEN: generated problems of abstract reasoning (tab:sran)."""
