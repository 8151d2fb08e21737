"""Learn one vocabulary for all the languages, as a Hugging Face tokenizer.

    python -m recipes.translation.vocabulary PAIRS_FOLDER OUT_FOLDER --size 8000 --romanian 5

PAIRS_FOLDER is what `recipes.translation.pairs` wrote. The subwords are learned by byte-pair
encoding from both sides of the training pairs, the Romanian pairs counted several times, since
there are few of them. The case is kept. Punctuation marks, symbols and digits are tokens of their
own (with the space in front, if there is one), so that they never become part of a word.

Text is tidied as the training text was. Decoding gives back the tidied text, space for space,
unless it has characters that were never seen: those become <unk>. Encoding adds no special token.
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
    """Yield both sides of all training pairs, those with Romanian `romanian` times."""
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
    """Learn a vocabulary, keep it, and say how many tokens a sentence takes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=Path, help="folder that recipes.translation.pairs wrote")
    parser.add_argument("out", type=Path, help="folder to keep the tokenizer in")
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
            print(f"{name}, {language}: {mean:.1f} tokens a sentence")


if __name__ == "__main__":
    main()
