"""Blind human ratings of texts: studies, a rating page, means with intervals, and agreement."""

from maskov.ui.ratings.report import Condition, Mean, Ratings, load
from maskov.ui.ratings.store import Answer, RatingStore
from maskov.ui.ratings.study import Study, make

__all__ = ["Answer", "Condition", "Mean", "RatingStore", "Ratings", "Study", "load", "make"]
