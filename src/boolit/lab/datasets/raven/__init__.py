"""I-RAVEN: problems of abstract reasoning, generated, solved, drawn and stored (tab:sran)."""
