"""Speed of a model's masked passes with our encoder, compared with Hugging Face's.

    python -m benchmarks encoder --model bert-base-shaped --precision bfloat16 --out encoder.json

Sequences have --length tokens and their special ones; ours are packed end to end, with one query
each, Hugging Face's are padded. Times are medians over calls. `share_of_ceiling` is the speed of
the products that ours executes relative to plain products of the model's shapes.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.flops import flops_per_pass, measure_ceiling
from benchmarks.models import load_model
from benchmarks.tools import MODEL, length_of, now, parser, show, write


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    options = parser(
        __doc__, **MODEL, length="15:45", passes=4096, repeat=20, seconds=1.0
    ).parse_args(arguments)
    model = load_model(options.model, options.device, options.precision, plain=True)
    device, frame = model.device, model.frame.size
    low, high = length_of(options.length)
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(low, high + 1, (options.passes,), generator=generator)
    tokens = torch.randint(5, model.vocabulary_size, (options.passes, high), generator=generator)
    place = (torch.rand(options.passes, generator=generator) * lengths).long()
    padded = torch.nn.functional.pad(tokens, (0, frame)).to(device)
    mask = (torch.arange(high + frame) < lengths[:, None] + frame).long().to(device)
    inputs = [each.to(device) for each in (tokens, lengths, place)]

    def milliseconds(call: Callable[[], Any]) -> float:
        times = []
        for _ in range(options.repeat + 2):  # two warm up
            begin = now(device)
            with torch.no_grad():
                call()
            times.append(1e3 * (now(device) - begin))
        return statistics.median(times[2:])

    ours = milliseconds(lambda: model.hidden_at(*inputs))
    other = milliseconds(lambda: model.network.base_model(input_ids=padded, attention_mask=mask))
    flops = [
        flops_per_pass(model.network.config, n, frame, model.encoder is not None, "transform") or 0
        for n in lengths.tolist()
    ]
    ceiling = measure_ceiling(model, options.seconds)
    results = {
        "kind": "encoder",
        "tokens": int(lengths.sum()) + frame * options.passes,
        "ours_ms": ours,
        "huggingface_ms": other,
        "ratio": other / ours,
        "teraflops": sum(flops) / ours / 1e9,
        "ceiling_teraflops": ceiling,
        "share_of_ceiling": ceiling and sum(flops) / ours / 1e9 / ceiling,
    }
    show([results], *(name for name, value in results.items() if isinstance(value, float | int)))
    write(options, device, results)
