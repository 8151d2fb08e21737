"""Speed of the encoder, compared with Hugging Face's and with the bare matrix products.

    python -m maskov.benchmarks.encoder --json encoder.json [--sweep]

Sequences have 15 to 45 tokens plus two special ones, are packed end to end, and have one query
each. Times are medians over calls. `products` runs only the matrix products of a call; `share` is
the speed of the executed products relative to one large product.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from maskov.benchmarks.models import load_model, random_bert
from maskov.encoders import Encoder, Packed
from maskov.encoders.blocks import EncoderNetwork
from maskov.models import device_name

DTYPES = {"bf16": torch.bfloat16, "tf32": torch.float32, "fp32": torch.float32}
SHORTEST, LONGEST = 17, 47
TILES = [(16, 64, 1), (16, 64, 2), (32, 32, 1), (32, 32, 2), (32, 64, 2), (32, 64, 4), (64, 32, 4),
         (64, 64, 2), (64, 64, 4), (64, 64, 8)]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = _options(arguments)
    device = torch.device(options.device)
    report: dict[str, Any] = {"device": device_name(device), "torch": torch.__version__, "rows": []}
    print(f"{report['device']}, torch {torch.__version__}")
    ceiling = {}
    for name in options.dtypes:
        with _products(name):
            ceiling[name] = _ceiling(DTYPES[name], device, 256 if options.toy else 8192)
    report["ceiling_tflops"] = ceiling
    print("one large product:", ", ".join(f"{k} {v:.1f} TFLOP/s" for k, v in ceiling.items()))
    print(
        f"{'model':10} {'dtype':5} {'tokens':>7} {'passes':>6} {'ours':>9} {'graph':>9} {'HF':>9} "
        f"{'products':>9} {'TFLOP/s':>8} {'share':>6} {'error':>8}   (times in ms)"
    )
    for model, network in _networks(options.toy, device):
        encoder = Encoder.of(network)
        if encoder is None:
            raise SystemExit(f"{model}: the encoder does not agree with the network")
        for name in options.dtypes:
            with _products(name):
                _measure(report, options, model, name, encoder, network, ceiling[name])
    if options.sweep and device.type == "cuda":
        _sweep(report, options.dtypes, device)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


def _measure(
    report: dict[str, Any],
    options: argparse.Namespace,
    model: str,
    name: str,
    encoder: Encoder,
    network: Any,
    ceiling: float,
) -> None:
    """Time one model in one dtype at every size."""
    ours = encoder.to(DTYPES[name])
    other = copy.deepcopy(network).to(DTYPES[name]).base_model
    for tokens in options.tokens:
        call, padded, query_row, passes = _inputs(ours, other, tokens, network.device)
        out, reference = call(), padded()
        picked = reference[torch.arange(passes, device=out.device), query_row]
        error = float((out - picked).abs().max() / picked.abs().max())
        del reference, picked, out
        products, flops = _bare_products(ours.network, tokens, passes, network.device)
        row: dict[str, Any] = {"model": model, "dtype": name, "tokens": tokens, "passes": passes}
        row["ours_ms"] = _time(call, network.device)
        row["graph_ms"] = (
            _time(_graph(call), network.device) if network.device.type == "cuda" else None
        )
        row["huggingface_ms"] = _time(padded, network.device)
        row["products_ms"] = _time(products, network.device)
        best = min(row["ours_ms"], row["graph_ms"] or row["ours_ms"])
        row["tflops"] = flops / best / 1e9
        row["share"] = row["tflops"] / ceiling
        row["error"] = error
        report["rows"].append(row)
        graph = f"{row['graph_ms']:9.3f}" if row["graph_ms"] else f"{'-':>9}"
        print(
            f"{model:10} {name:5} {tokens:7} {passes:6} {row['ours_ms']:9.3f} {graph} "
            f"{row['huggingface_ms']:9.3f} {row['products_ms']:9.3f} {row['tflops']:8.2f} "
            f"{row['share']:6.1%} {error:8.1e}",
            flush=True,
        )
        if model == "bert-base" and name == options.dtypes[0] and tokens == options.tokens[1]:
            report["profile"] = _profile(call, network.device)


def _inputs(
    ours: Encoder, other: Any, tokens: int, device: torch.device
) -> tuple[Callable[[], Any], Callable[[], Any], Any, int]:
    """Return a call of our encoder, one of Hugging Face's, the query positions and the passes."""
    generator = torch.Generator().manual_seed(tokens)
    lengths = torch.randint(SHORTEST, LONGEST + 1, (tokens // SHORTEST,), generator=generator)
    lengths = lengths[lengths.cumsum(0) <= tokens]
    passes, used = len(lengths), int(lengths.sum())
    ids = torch.randint(5, 8000, (tokens,), generator=generator)
    starts = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    owner = torch.repeat_interleave(torch.arange(passes), lengths)
    position = torch.zeros(tokens, dtype=torch.long)
    position[:used] = torch.arange(used) - starts[owner]
    place = (torch.rand(passes, generator=generator) * lengths).long()
    inside = torch.arange(LONGEST) < lengths[:, None]
    block = torch.zeros(passes, LONGEST, dtype=torch.long)
    block[inside] = ids[:used]
    layout = Packed(starts.int().to(device), LONGEST)
    ids, position, query = ids.to(device), position.to(device), (starts[:-1] + place).to(device)
    block, attention = block.to(device), inside.long().to(device)

    def call() -> Any:
        return ours(ids, position, layout, query)

    def padded() -> Any:
        with torch.no_grad():
            return other(input_ids=block, attention_mask=attention)[0]

    return call, padded, place.to(device), passes


def _bare_products(
    network: EncoderNetwork, tokens: int, passes: int, device: torch.device
) -> tuple[Callable[[], None], int]:
    """Return a call of all matrix products, and its floating-point operations."""
    *blocks, last = network.blocks
    width = last.width
    weights = []
    for block in blocks:
        parts = (block.qkv, block.out, block.feed.inner, block.feed.outer)
        weights += [(part, tokens) for part in parts]
    weights += [(last.qkv.rows(width, 3 * width), tokens), (last.qkv.rows(0, width), passes)]
    weights += [(part, passes) for part in (last.out, last.feed.inner, last.feed.outer)]
    if network.embedding.project is not None:
        weights.append((network.embedding.project, tokens))
    dtype = last.out.weight.dtype
    sizes = {(rows, part.weight.shape[1]) for part, rows in weights}
    inputs = {size: _noise(size, dtype, device) for size in sizes}

    def products() -> None:
        for part, rows in weights:
            F.linear(inputs[rows, part.weight.shape[1]], part.weight, part.bias)

    return products, sum(2 * rows * part.weight.numel() for part, rows in weights)


def _time(call: Callable[[], Any], device: torch.device, seconds: float = 0.5) -> float:
    """Return the median time of a call in ms, after two warm-up calls."""
    call()
    call()
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - begin < seconds and len(times) < 50):
        if device.type == "cuda":
            start, end = (
                torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
                for _ in range(2)
            )
            start.record()
            call()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        else:
            start_time = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - start_time))
    return statistics.median(times)


def _graph(call: Callable[[], Any]) -> Callable[[], None]:
    """Capture a call, which must have run before, in a CUDA graph."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def _ceiling(dtype: torch.dtype, device: torch.device, size: int) -> float:
    a = _noise((size, size), dtype, device)
    return 2 * size**3 / _time(lambda: a @ a, device, 0.3) / 1e9


def _noise(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    # Constant inputs would use less power and overstate the speed.
    return torch.randn(shape, device=device).to(dtype)


def _profile(call: Callable[[], Any], device: torch.device) -> list[dict[str, Any]]:
    """Print the kernels that take the time of one call."""
    from torch.profiler import ProfilerActivity, profile

    cuda = device.type == "cuda"
    activities = [ProfilerActivity.CUDA] if cuda else [ProfilerActivity.CPU]
    with profile(activities=activities) as recorded:
        call()
        if cuda:
            torch.cuda.synchronize()
    field = "self_device_time_total" if cuda else "self_cpu_time_total"
    events = [(getattr(e, field), e.count, e.key) for e in recorded.key_averages()]
    total = sum(spent for spent, _, _ in events) or 1
    rows = []
    for spent, count, key in sorted(events, reverse=True)[:14]:
        print(f"    {spent / 1e3:9.3f} ms {spent / total:6.1%} {count:5} x {key[:80]}")
        rows.append({"kernel": key, "ms": spent / 1e3, "count": count})
    return rows


def _sweep(report: dict[str, Any], names: list[str], device: torch.device) -> None:
    """Time the attention kernel alone with other tile sizes."""
    from maskov.encoders import fused

    report["tiles"] = []
    for model, network in _networks(False, device):
        encoder = Encoder.of(network)
        assert encoder is not None
        for name in names:
            part = encoder.to(DTYPES[name]).network
            lengths = SHORTEST + torch.arange(2048) % (LONGEST - SHORTEST + 1)
            starts = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)]).int()
            tokens, block = int(starts[-1]), part.blocks[0]
            plan = fused.plan(Packed(starts.to(device), LONGEST), tokens, device)
            qkv = torch.randn(tokens, 3 * block.width, device=device).to(DTYPES[name])
            for tiles in (fused.Tiles(*sizes) for sizes in TILES):
                with _products(name):
                    milliseconds = _time(
                        lambda: fused.attend(qkv, block, part.heads, plan, tiles),  # noqa: B023
                        device,
                        0.05,
                    )
                bandwidth = 4 * tokens * block.width * qkv.element_size() / milliseconds / 1e9
                report["tiles"].append(
                    {"model": model, "dtype": name, "tiles": str(tiles), "ms": milliseconds}
                )
                print(
                    f"    attention {model} {name} {tiles} {milliseconds:.3f} ms "
                    f"{bandwidth:.2f} TB/s"
                )


def _networks(toy: bool, device: torch.device) -> list[tuple[str, Any]]:
    bert = random_bert(2 if toy else 12, 768).network
    networks = [("bert-base", bert), ("wiki-small", load_model("wiki-small", "cpu").network)]
    return [(name, network.to(device).eval().requires_grad_(False)) for name, network in networks]


@contextmanager
def _products(name: str) -> Any:
    """Allow TF32 products for `tf32` only."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--json", type=Path, help="JSON file to write")
    parser.add_argument("--device", default=device)
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=list(DTYPES))
    parser.add_argument("--tokens", nargs="+", type=int, default=[2**14, 2**16, 2**17])
    parser.add_argument("--sweep", action="store_true", help="also time other attention tiles")
    parser.add_argument("--toy", action="store_true", help="sizes for a CPU")
    options = parser.parse_args(arguments)
    if options.toy:
        options.tokens = [256, 512]
    if len(options.tokens) < 2:
        options.tokens = options.tokens * 2
    return options


if __name__ == "__main__":
    main()
