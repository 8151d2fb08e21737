"""The rating scales: coherence and fluency, four points each, every point described in words.

The paper (Table 6) uses 4-point Likert scales and gives no wording; this is ours. A study keeps a
copy, so that later changes here do not affect it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """A question and its points from 1 up, each with a title and an explanation."""

    name: str
    question: str
    points: tuple[tuple[str, str], ...]


POINTS = 4

COHERENCE = Scale(
    "coherence",
    "Does it make sense as a whole?",
    (
        ("No sense", "the words add up to no meaning"),
        ("Little sense", "parts mean something, the whole does not"),
        ("Mostly sense", "one sees what is meant, but something jars"),
        ("Full sense", "clear and consistent throughout"),
    ),
)
FLUENCY = Scale(
    "fluency",
    "Is it well-formed, sense aside?",
    (
        ("Broken", "hardly any of it is grammatical"),
        ("Rough", "several mistakes, or hard to read"),
        ("Nearly right", "a slip or an odd phrase"),
        ("Flawless", "as a careful writer would put it"),
    ),
)
SCALES = (COHERENCE, FLUENCY)
