"""Models of a benchmark: any that maskov loads, and BERT shapes with random weights.

`bert-base-shaped` has 12 layers of width 768; other shapes are named by layers and width, such as
`bert-4x256-shaped`. Nothing is downloaded, and times per pass equal those of trained weights.
`wiki-small-grown` is the shipped model enlarged to the size of BERT-base.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch

from maskov.benchmarks.grown import grow
from maskov.benchmarks.sentences import SENTENCES
from maskov.errors import InputError
from maskov.models import HuggingFaceModel, MaskedModel, choose_device, load
from maskov.models.precision import in_precision

PRECISIONS = ("float32", "tf32", "bfloat16")

_SHAPE = re.compile(r"bert-(?:base|(?P<layers>\d{1,3})x(?P<width>\d{1,5}))-shaped")
_VOCABULARY = 30522
GROWN = "wiki-small-grown"
_HEAD = 64


def load_model(
    name: str, device: str = "auto", precision: str = "float32", plain: bool = False
) -> HuggingFaceModel:
    """Load the model of a benchmark; a folder is named without its path.

    With `plain`, the network itself is in `precision`; otherwise only its masked passes are.
    """
    where = choose_device(device)
    if precision == "tf32" and where.type != "cuda":
        raise InputError("tf32 is for CUDA devices; use --precision float32 here.")
    shape = _SHAPE.fullmatch(name)
    if shape is not None:
        model: MaskedModel = random_bert(
            int(shape["layers"] or 12), int(shape["width"] or 768), where
        )
    elif name == GROWN:
        small = load("wiki-small", where)
        assert isinstance(small, HuggingFaceModel)
        model = grow(small)
    else:
        model = load(name, where)
    if not isinstance(model, HuggingFaceModel):
        raise InputError(f"'{name}' is not a Hugging Face model, which the plain rows need.")
    if Path(name).is_dir():
        model.name = Path(name).resolve().name
    if plain:
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        model.dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        model.network.to(model.dtype)
        return model
    changed = in_precision(model, precision)
    assert isinstance(changed, HuggingFaceModel)
    return changed


def random_bert(
    layers: int, width: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> HuggingFaceModel:
    """Build a BERT of a given shape with random weights from a fixed seed."""
    from transformers import BertConfig, BertForMaskedLM, BertTokenizer

    if layers < 1 or width < _HEAD or width % _HEAD:
        raise InputError(
            f"a BERT shape has at least 1 layer and a width in steps of {_HEAD}, "
            f"not {layers}x{width}."
        )
    name = "bert-base-shaped" if (layers, width) == (12, 768) else f"bert-{layers}x{width}-shaped"
    config = BertConfig(
        vocab_size=_VOCABULARY,
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=width // _HEAD,
        intermediate_size=4 * width,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = BertForMaskedLM(config)
    return HuggingFaceModel(
        network.to(device=device, dtype=dtype),
        BertTokenizer(vocab={word: i for i, word in enumerate(_words())}),
        name,
        caution=f"'{name}' has random weights: nearly every proposal is novel, so its times and "
        "passes apply to trained models of this shape, but its moves do not.",
    )


def _words() -> list[str]:
    """Return a full vocabulary: special tokens, the words of the sentences, and fillers."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    real = [*special, *dict.fromkeys(" ".join(SENTENCES).split())]
    return real + [f"word{number}" for number in range(_VOCABULARY - len(real))]
