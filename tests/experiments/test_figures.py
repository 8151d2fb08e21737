"""Figures: scales on which numbers can be read."""

import pytest
from experiments.lib import figures, style
from experiments.lib.result import Entry, Result, build_document
from experiments.lib.settings import SETTINGS


def _drawn(quantity: str, values: dict[str, float]):
    """Return the axes of bars, one for each sampler, as they would be saved."""
    cells = {
        name: {"seconds": 1.0, "device": "cpu",
               "values": {quantity: {"value": value, "standard_error": 0.0, "n": 5}}}
        for name, value in values.items()
    }  # fmt: skip
    entries = [Entry(quantity, name, "text", name) for name in cells]
    result = Result("table4", "t", "", lambda s: {}, lambda s: entries, lambda d: None)
    figure = figures.plot_bars(build_document(result, SETTINGS["full"], cells, []), [quantity])
    figure.canvas.draw()
    (axes,) = figure.axes
    return axes


@pytest.mark.parametrize(
    ("quantity", "values", "scale"),
    [
        ("novel", {"deg": 0.78, "raw": 0.033, "norm": 0.16}, "linear"),
        ("perplexity", {"deg": 998.0, "raw": 40.0, "norm": 90.0}, "log"),
        ("perplexity", {"deg": 208.3, "raw": 69.9, "norm": 112.2}, "linear"),
    ],
)
def test_bars_are_on_a_scale_whose_numbers_tell_them_apart(quantity, values, scale):
    axes = _drawn(quantity, values)
    assert axes.get_yscale() == scale
    low, high = axes.get_ylim()
    ticks = [*axes.yaxis.get_major_ticks(), *axes.yaxis.get_minor_ticks()]
    shown = [
        tick.label1.get_text() for tick in ticks
        if low <= tick.get_loc() <= high and tick.label1.get_text()
    ]  # fmt: skip
    assert len(shown) > 2
    assert len(set(shown)) == len(shown)
    style.plt.close(axes.figure)
