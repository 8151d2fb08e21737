"""Antibodies: exactness on a lattice, published scores, humanisation."""
