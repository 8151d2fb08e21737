"""One sample, as it is stored, printed and handed to Python."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


def _are(kind: type, found: object) -> bool:
    return isinstance(found, list) and all(type(one) is kind for one in found)


@dataclass(frozen=True)
class Sample:
    """A sequence that a chain held at the end of an epoch, with both energies.

    `ids` are the content tokens and are what the energies belong to: decoding them and
    tokenising the text again may give others. `template` is the line of the user's input the
    chain belongs to, 0 where there was none. `energies` are, where the energy has experts, those
    of the `target` and of each expert by name. Of chains that started from FASTA, `name` is the
    parent's and `mutations`, where lengths are fixed, are the differences to it, such as S31R.
    """

    chain: int
    epoch: int
    text: str
    tokens: list[str]
    ids: list[int]
    energy_raw: float
    energy_norm: float
    template: int = 0
    energies: dict[str, float] = field(default_factory=dict)
    name: str | None = None
    mutations: list[str] | None = None

    def __post_init__(self) -> None:
        """Refuse what a damaged file may say."""
        numbers = (self.chain, self.epoch, self.template)
        if not isinstance(self.energies, dict):
            raise TypeError("no sample")
        energies = (self.energy_raw, self.energy_norm, *self.energies.values())
        if not (
            isinstance(self.text, str)
            and all(type(one) is int for one in numbers)
            and all(type(one) in (int, float) for one in energies)
            and _are(str, self.tokens)
            and _are(int, self.ids)
            and (self.name is None or isinstance(self.name, str))
            and (self.mutations is None or _are(str, self.mutations))
        ):
            raise TypeError("no sample")

    def to_json(self) -> str:
        """Return the sample as one line of JSON."""
        data = asdict(self)
        if not self.energies:
            del data["energies"]
        for name in ("name", "mutations"):
            if data[name] is None:
                del data[name]
        return json.dumps(data, ensure_ascii=False)
