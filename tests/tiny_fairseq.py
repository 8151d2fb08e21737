"""Tiny checkpoints as Mask-Predict's authors publish them: fairseq's names, random weights."""

import argparse

import torch

WIDTH, HEADS, INNER = 16, 4, 24
ENCODERS, DECODERS = 2, 3
# Most positions of source and target, which differ in no published model but may.
SOURCE, TARGET = 14, 12
WORDS = [*"lowernstidg", *(f"{letter}@@" for letter in "lowernstidg"), "lo@@", "low", "er", "est"]
WORDS += [".", "madeupword0000"]
VOCABULARY = 5 + len(WORDS)
PADDING = 1


def settings(**changes):
    """Return the settings that fairseq pickles beside the weights."""
    known = {
        "arch": "bert_transformer_seq2seq",
        "task": "translation_self",
        "share_all_embeddings": True,
        "encoder_layers": ENCODERS,
        "decoder_layers": DECODERS,
        "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS,
        "encoder_normalize_before": False,
        "decoder_normalize_before": False,
        "adam_betas": "(0.9, 0.999)",
        "lr": [0.0005],
        "adaptive_softmax_cutoff": None,
    }
    return argparse.Namespace(**known | changes)


def weights(norm_first=False, apart=False):
    """Return random weights under fairseq's names; nothing is zero or one that could hide."""
    generator = torch.Generator().manual_seed(5)

    def draw(*size):
        return torch.randn(*size, generator=generator) * 0.4

    state = {}

    def linear(name, rows, columns):
        state[f"{name}.weight"], state[f"{name}.bias"] = draw(rows, columns), draw(rows)

    def norm(name):
        state[f"{name}.gamma"], state[f"{name}.beta"] = 1 + draw(WIDTH), draw(WIDTH)

    def attention(name):
        if apart:
            for part in "kvq":
                linear(f"{name}.{part}_proj", WIDTH, WIDTH)
        else:
            state[f"{name}.in_proj_weight"] = draw(3 * WIDTH, WIDTH)
            state[f"{name}.in_proj_bias"] = draw(3 * WIDTH)
        linear(f"{name}.out_proj", WIDTH, WIDTH)

    def inner(name):
        linear(f"{name}.fc1", INNER, WIDTH)
        linear(f"{name}.fc2", WIDTH, INNER)

    for side in ("encoder", "decoder"):
        state[f"{side}.version"] = torch.tensor([2.0])
    words = draw(VOCABULARY, WIDTH)
    state["encoder.embed_tokens.weight"] = state["decoder.embed_tokens.weight"] = words
    state["encoder.embed_positions.weight"] = draw(SOURCE + PADDING + 1, WIDTH)
    state["decoder.embed_positions.weight"] = draw(TARGET + PADDING + 1, WIDTH)
    state["encoder.embed_lengths.weight"] = draw(TARGET, WIDTH)
    for number in range(ENCODERS):
        name = f"encoder.layers.{number}"
        attention(f"{name}.self_attn")
        inner(name)
        norm(f"{name}.layer_norms.0")
        norm(f"{name}.layer_norms.1")
    for number in range(DECODERS):
        name = f"decoder.layers.{number}"
        attention(f"{name}.self_attn")
        norm(f"{name}.self_attn_layer_norm")
        attention(f"{name}.encoder_attn")
        norm(f"{name}.encoder_attn_layer_norm")
        inner(name)
        norm(f"{name}.final_layer_norm")
    if norm_first:
        norm("encoder.layer_norm")
        norm("decoder.layer_norm")
    return state


def write(folder, state=None, codes=None, words=WORDS, extra=None, old=False, **changes):
    """Write a model folder as it is published."""
    lines = "".join(f"{word} {10**6 - number}\n" for number, word in enumerate(words))
    for language in ("en", "de"):
        (folder / f"dict.{language}.txt").write_text(lines, encoding="utf-8")
    if codes is not None:
        (folder / "ende.code").write_text(codes, encoding="utf-8")
    content = {
        "args": settings(**changes),
        "model": weights() if state is None else state,
        "optimizer_history": [{"criterion_name": "x", "lr_scheduler_state": {"best": 4.2}}],
        "extra_state": extra,
    }
    file = folder / "checkpoint_best.pt"
    torch.save(content, file, _use_new_zipfile_serialization=not old)
    return file
