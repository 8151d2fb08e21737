"""Encoder-decoder masked models, which read a source text together with the sequence."""
