"""Sentiment rewriting on Yelp against twelve published systems."""
