"""Tables on the terminal: texts as people write them."""

from __future__ import annotations

from maskov.cli.output import print_samples
from maskov.runs import Sample


def test_samples_are_spelled_as_people_write(capsys):
    tokens = ["saint", "-", "maurice", "'", "s", "(", "swiss", ")", "abbe", "##y", "."]
    text = "saint - maurice ' s ( swiss ) abbey."
    sample = Sample(0, 8, text, tokens, list(range(len(tokens))), -1.5, 2.25)
    print_samples([sample])
    shown = capsys.readouterr().out
    assert "saint-maurice's (swiss) abbey." in shown
    assert "-1.50" in shown
    assert sample.text == text
