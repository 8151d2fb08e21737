"""256 English sentences of mixed lengths to score: every subject with every predicate."""

from __future__ import annotations

_SUBJECTS = """
the old library near the river
a small group of students from the village
he
most of the early settlers , who had come from the north ,
the new bridge
her second book , a history of the war ,
the company
nobody in the town
the first railway line between the two cities
this kind of music
a young doctor named anna
the church , which had been built in 1823 ,
the army
several members of the national team
it
the president of the university
"""

_PREDICATES = """
was closed for repairs during the winter of that year .
had never seen anything like it before .
became known throughout the country for the quality of its work .
left .
was followed by a long period of peace and steady growth .
did not return until the end of the summer , when the roads were open again .
appeared in the film as well as in the book it was based on .
was sold in 1974 to a family that still lives there today .
moved south .
is often said to be the most important of its time , although few people remember why .
received several awards .
took part in the games of 1936 and came third .
was named after a river in the west of the island .
played an important role in the life of the city for more than two hundred years .
has been described as a work of great beauty , written in a simple and direct style .
met with strong opposition from the local government .
"""

# The order mixes lengths, so any prefix resembles the whole.
SENTENCES: tuple[str, ...] = tuple(
    f"{subject} {_PREDICATES.strip().splitlines()[(row + shift) % 16]}"
    for shift in range(16)
    for row, subject in enumerate(_SUBJECTS.strip().splitlines())
)
