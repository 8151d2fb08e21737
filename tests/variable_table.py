"""A tabular model of several lengths: a table of random conditionals for each."""

from __future__ import annotations

import torch

from maskov.models import TabularModel
from maskov.models.base import Queries
from small import random_table


class VariableTable(TabularModel):
    """Random conditionals that depend on the whole context and on the length."""

    def __init__(self, shortest: int, longest: int, size: int = 2) -> None:
        self._tables = {n: random_table(n, size, seed=n) for n in range(shortest, longest + 1)}
        super().__init__(self._tables[longest].scores, self._tables[longest].tokens)
        self.min_length, self.max_length = shortest, longest

    def hidden(self, queries):
        """Ask the table of each length."""
        answers = torch.zeros((int(queries.masked.sum()), len(self.tokens)), dtype=torch.float64)
        row = queries.masked.nonzero(as_tuple=True)[0]
        for length, table in self._tables.items():
            chosen = (queries.lengths == length).nonzero().flatten()
            if len(chosen):
                part = Queries(
                    queries.tokens[chosen, :length],
                    queries.lengths[chosen],
                    queries.masked[chosen, :length],
                    None,
                )
                answers[torch.isin(row, chosen)] = table.hidden(part)
        return answers
