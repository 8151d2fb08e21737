"""What raters are asked: two scales of four points, each point with its meaning in words.

The paper (its Table 6) asked for coherence and fluency on 4-point Likert scales and gives no
wording; this is ours. A study keeps a copy, so that its questions never change under it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """A question and what its points, from 1 upwards, stand for: a title and a gloss each."""

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
