"""Sentiment rewriting on Yelp against twelve published systems: `python -m experiments.control`."""
