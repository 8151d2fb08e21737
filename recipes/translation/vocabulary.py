"""Learn one BPE tokenizer for all languages.

    python -m recipes.translation.vocabulary PAIRS_FOLDER OUT_FOLDER --size 8000 --romanian 5

PAIRS_FOLDER is written by `recipes.translation.pairs`. Subwords are learned from both sides of the
training pairs; Romanian pairs count several times, because there are few. Case is kept.
Punctuation, symbols and digits are separate tokens (with the space before them, if any).

Text is normalised like the training text. Decoding restores the normalised text exactly, except
for characters that were never seen, which become <unk>. Encoding adds no special tokens.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recipes.translation.pairs import ALIKE, INVISIBLE, SOURCES, SPACE
from recipes.vocabulary import read_sentences

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<mask>", "<length>"]
ALPHABET = 400  # enough for three languages and the names in them
# ▁ is a symbol itself, to Unicode.
_ALONE = r"▁?(?:[\p{P}\p{N}]|(?!▁)\p{S})"


def training_text(folder: Path, romanian: int) -> Iterator[str]:
    """Yield both sides of all training pairs, Romanian ones `romanian` times."""
    for name in SOURCES:
        for _ in range(romanian if name.startswith("ro") else 1):
            for side in ("src", "tgt"):
                yield from read_sentences(folder / f"{name}.train.{side}.xz")


def learn(sentences: Iterator[str], size: int) -> Any:
    """Return a tokenizer with `size` tokens, learned from the sentences."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    # The same steps as `pairs.tidy`, in the same order.
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFC(),
            normalizers.Replace(Regex(f"[{INVISIBLE}]"), ""),
            *(normalizers.Replace(one, other) for one, other in ALIKE.items()),
            normalizers.Replace(Regex(SPACE), " "),
            normalizers.Strip(),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Split(Regex(_ALONE), "isolated")]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=SPECIAL,
        limit_alphabet=ALPHABET,
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences, trainer)
    pad, begin, end, unknown, mask, length = SPECIAL
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=pad,
        bos_token=begin,
        eos_token=end,
        unk_token=unknown,
        mask_token=mask,
        extra_special_tokens=[length],
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )


def main(arguments: list[str] | None = None) -> None:
    """Learn and save a tokenizer; print the mean number of tokens per sentence."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=Path, help="folder written by recipes.translation.pairs")
    parser.add_argument("out", type=Path, help="folder to write the tokenizer to")
    parser.add_argument("--size", type=int, default=8000, help="tokens, special ones included")
    parser.add_argument("--romanian", type=int, default=5, help="times to count Romanian pairs")
    given = parser.parse_args(arguments)
    if not (given.pairs / "pairs.json").exists():
        parser.error(f"'{given.pairs}' has no pairs.json; run recipes.translation.pairs first")
    tokenizer = learn(training_text(given.pairs, given.romanian), given.size)
    tokenizer.save_pretrained(given.out)
    print(f"{given.out}: {len(tokenizer):,} tokens")
    for name in SOURCES:
        for side, language in zip(("src", "tgt"), name.split("-"), strict=True):
            sentences = list(read_sentences(given.pairs / f"{name}.valid.{side}"))
            tokens = sum(map(len, tokenizer(sentences)["input_ids"]))
            mean = tokens / max(1, len(sentences))
            print(f"{name}, {language}: {mean:.1f} tokens per sentence")


if __name__ == "__main__":
    main()
