"""I-RAVEN: problems of abstract reasoning, made, solved, drawn and kept (tab:sran)."""
