"""Models of a benchmark: any that maskov loads, and BERT shapes with random weights.

`bert-base-shaped` has 12 layers of width 768; other shapes are named by layers and width, such as
`bert-4x256-shaped`. Nothing is downloaded, and times per pass equal those of trained weights. The
cost of a run depends on how often proposals differ and are accepted, which random weights do not
show: `wiki-small-grown` is the shipped model enlarged to the size of BERT-base. `SENTENCES` are
texts to score.
"""

import copy
import re
from typing import cast

import torch

from maskov.errors import InputError
from maskov.models import HuggingFaceModel, MaskedModel, choose_device, load
from maskov.models.base import adapted
from maskov.types import Tensor

_SHAPE = re.compile(r"bert-(?:base|(\d{1,3})x(\d{1,5}))-shaped")
_VOCABULARY = 30522
_LAYERS = 12

_SUBJECTS = """
the old library near the river
a small group of students from the village
he
most of the early settlers , who had come from the north ,
her second book , a history of the war ,
nobody in the town
the church , which had been built in 1823 ,
the president of the university
"""
_PREDICATES = """
was closed for repairs during the winter of that year .
had never seen anything like it before .
left .
did not return until the end of the summer , when the roads were open again .
was sold in 1974 to a family that still lives there today .
is often said to be the most important of its time , although few people remember why .
received several awards .
has been described as a work of great beauty , written in a simple and direct style .
"""


def mixed(subjects: str, predicates: str) -> list[str]:
    """Return every sentence of the lines; any first ones have lengths like all of them."""
    starts, ends = subjects.strip().splitlines(), predicates.strip().splitlines()
    return [
        f"{start} {ends[(row + shift) % len(ends)]}"
        for shift in range(len(ends))
        for row, start in enumerate(starts)
    ]


SENTENCES = mixed(_SUBJECTS, _PREDICATES)


def load_model(
    name: str, device: str = "auto", precision: str = "float32", plain: bool = False
) -> HuggingFaceModel:
    """Load the model of a benchmark.

    With `plain`, the network itself is in `precision`; otherwise only its masked passes are.
    """
    where = choose_device(device)
    if precision == "tf32" and where.type != "cuda":
        raise InputError("tf32 is for CUDA devices; use --precision float32 here.")
    shape = _SHAPE.fullmatch(name)
    if shape is not None:
        model: MaskedModel = random_bert(int(shape[1] or _LAYERS), int(shape[2] or 768), where)
    else:
        model = load(name.removesuffix("-grown"), where)
    if not isinstance(model, HuggingFaceModel):
        raise InputError(f"'{name}' is not a Hugging Face model, which the plain rows need.")
    if name.endswith("-grown"):
        model = grow(model)
    if not plain:
        return cast(HuggingFaceModel, adapted(model, model.source, precision))
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    model.dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    model.network.to(model.dtype)
    return model


def random_bert(layers: int, width: int, device: torch.device | str = "cpu") -> HuggingFaceModel:
    """Build a BERT of a given shape with random weights from a fixed seed."""
    from transformers import BertConfig, BertForMaskedLM, BertTokenizer

    if layers < 1 or width < 64 or width % 64:
        raise InputError(
            f"a BERT shape has layers and a width in steps of 64, not {layers}x{width}."
        )
    config = BertConfig(
        vocab_size=_VOCABULARY, num_hidden_layers=layers, hidden_size=width,
        num_attention_heads=width // 64, intermediate_size=4 * width,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = BertForMaskedLM(config)
    known = dict.fromkeys(("[PAD] [UNK] [CLS] [SEP] [MASK] " + " ".join(SENTENCES)).split())
    words = [*known, *(f"word{number}" for number in range(_VOCABULARY - len(known)))]
    return HuggingFaceModel(
        network.to(device),
        BertTokenizer(vocab={word: number for number, word in enumerate(words)}),
        "bert-base-shaped" if (layers, width) == (12, 768) else f"bert-{layers}x{width}-shaped",
        caution="random weights: times and passes apply to trained models, moves do not.",
    )


def grow(small: HuggingFaceModel) -> HuggingFaceModel:
    """Return a ModernBERT of twice the width and 12 layers that computes the same, in float32.

    Every feature is duplicated (products average the two, norms are unaffected), and layers are
    added that contribute nothing.
    """
    from transformers import ModernBertForMaskedLM

    old = small.network
    config = copy.deepcopy(old.config)
    config.hidden_size *= 2
    config.intermediate_size *= 2
    config.num_attention_heads *= 2
    config.num_hidden_layers = _LAYERS
    config.layer_types = ["full_attention"] * _LAYERS
    with torch.random.fork_rng(devices=[]):
        network = ModernBertForMaskedLM(config)
    source = {name: weight.float().cpu() for name, weight in old.state_dict().items()}
    with torch.no_grad():
        for name, weight in network.named_parameters():
            weight.copy_(_enlarged_weight(name, source, len(old.model.layers)))
    network.tie_weights()
    return HuggingFaceModel(network.to(small.device), small.tokenizer, f"{small.name}-grown")


def _enlarged_weight(name: str, source: dict[str, Tensor], layers: int) -> Tensor:
    """Return one weight of the larger network."""
    parts = name.split(".")
    if "layers" in parts:
        number = int(parts[parts.index("layers") + 1])
        # Added layers are copies of real ones with zero output weights.
        copied = 1 + number % (layers - 1) if number >= layers else number
        parts[parts.index("layers") + 1] = str(copied)
        weight = source[".".join(parts)]
        if number >= layers and parts[-2] == "Wo":
            weight = torch.zeros_like(weight)
    else:
        weight = source[name]
    if parts[-2] == "tok_embeddings":
        return torch.cat([weight, weight], dim=1)
    if parts[-2:] == ["decoder", "bias"]:
        return weight
    if weight.dim() == 1:
        # Logits sum twice as many features, through embeddings that cannot be halved.
        half = parts[:2] == ["head", "norm"]
        return torch.cat([weight, weight]) / (2 if half else 1)
    groups = {"Wqkv": 3, "Wi": 2}.get(parts[-2], 1)
    rows = torch.cat([torch.cat([part, part]) for part in weight.chunk(groups)])
    return torch.cat([rows, rows], dim=1) / 2
