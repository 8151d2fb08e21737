"""How the shipped models were trained, from text to checkpoint."""
