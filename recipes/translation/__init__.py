"""How the translation models were trained, from sentence pairs to checkpoint."""
