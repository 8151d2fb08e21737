"""The fallback model: a tiny BERT with random weights over a few hundred English words.

It makes every command work without a download. Its sentences mean nothing, and every output says
so.
"""

from __future__ import annotations

import torch

from maskov.models.huggingface import HuggingFaceModel

_WORDS = """
the a an this that these those my your his her its our their some any no every each another one two
three four five ten many few much more most other such own same new old good bad great small large
long short high low young early late big little first last next few public able red green blue white
black dark light cold warm quiet loud bright heavy empty open i you he she it we they me him them us
who what which when where why how and or but if because while as until of at by for with about
against between into through during before after above below to from up down in out on off over
under again then once here there all both not only so than too very just still now never always
often today soon be is are was were been has have had do does did will would can could may might
must should say says said go goes went get gets got make makes made know knows knew think thinks
thought take takes took see sees saw come comes came want wants wanted look looks looked use uses
used find finds found give gives gave tell tells told work works worked call calls called try tries
tried ask asks asked need needs needed feel feels felt leave leaves left keep keeps kept let begin
begins began help helps helped show shows showed hear hears heard play plays played run runs ran
move moves moved live lives lived believe hold holds held bring brings brought write writes wrote
sit sits sat stand stands stood lose loses lost pay meet meets met read learn learned change changed
follow stop stopped speak spoke walk walked cat dog mat bird horse fish tree river mountain sea road
house door window room table chair book letter word sentence story song child woman man girl boy
friend mother father sister brother king queen doctor teacher city country village school market
church garden field forest night day morning evening year week hour summer winter rain snow wind sun
moon star fire water bread milk apple wine gold money time life death world war peace hand head eye
heart voice name number part place thing way side end line night question answer reason law power
. , ; : ? ! ' " ( ) -
"""


def untrained(
    device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> HuggingFaceModel:
    """Build the model; its weights come from a fixed seed."""
    from transformers import BertConfig, BertForMaskedLM, BertTokenizer

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *dict.fromkeys(_WORDS.split())]
    tokenizer = BertTokenizer(vocab={word: i for i, word in enumerate(words)})
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=130,
        initializer_range=0.3,  # wide enough that energies differ between words
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = BertForMaskedLM(config)
    return HuggingFaceModel(
        network.to(device, dtype),
        tokenizer,
        name="untrained",
        caution="'untrained' was never trained: its weights are random and its sentences mean "
        "nothing. Give --model for a trained model.",
    )
