"""Encoder-decoder masked models, which read a source text beside the sequence."""
