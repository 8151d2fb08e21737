"""Convert a published Mask-Predict model into a folder that maskov loads.

    python -m recipes.translation.fairseq FOLDER --out FOLDER

FOLDER holds checkpoint*.pt, the dictionaries dict.*.txt, which must be equal, and the BPE codes
(`codes`, `bpecodes` or `*.code`), without which text must be split into subwords already. Instead
of FOLDER one checkpoint file in it may be given. Text must be preprocessed as in training:
tokenised by Moses (`&apos;` for an apostrophe), and for the published English-German models with
`##AT##-##AT##` for a hyphen within a word.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from maskov.errors import MaskovError, ModelError
from maskov.models.tokens import CONTINUES, BytePairTokenizer, Merges
from recipes.translation.fairseq_weights import PADDING_ID, read_network
from recipes.translation.folders import save_translation

# Mask-Predict's fairseq puts these before the tokens of every dictionary file.
BEGIN, PAD, END, UNKNOWN, MASK = SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
assert SPECIAL.index(PAD) == PADDING_ID


def convert(path: Path, out: Path) -> None:
    """Write a model folder from a fairseq folder or checkpoint file."""
    file = _checkpoint_file(path)
    words = _vocabulary(file.parent)
    network = read_network(file)
    if network.shape.vocabulary != len(words):
        raise ModelError(
            f"'{file}' has {network.shape.vocabulary} tokens and its dictionary {len(words)}; "
            "give the dictionary it was trained with."
        )
    save_translation(out, network, _tokenizer(file.parent, words), torch.float32)


def convert_once(path: Path, cache: Path) -> Path:
    """Return the converted model in a cache folder; convert it if these files never were."""
    file = _checkpoint_file(path)
    digest = hashlib.sha256()
    for source in (file, *_dictionary_files(file.parent), *_merges_files(file.parent)):
        digest.update(source.name.encode())
        with source.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    folder = cache / digest.hexdigest()[:16]
    out = folder / file.parent.name
    if not out.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # Renamed when complete: an interrupted conversion leaves nothing that looks finished.
        partial = Path(tempfile.mkdtemp(dir=folder))
        try:
            convert(file, partial)
            os.rename(partial, out)
        except OSError:
            if not out.exists():  # otherwise another process was faster
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return out


def read_dictionary(path: Path) -> list[str]:
    """Read a fairseq dictionary of lines `token count`; return all tokens in the order of ids."""
    words = dict.fromkeys(SPECIAL)
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                word, gap, count = line.rstrip("\n").rpartition(" ")
                if not gap or not count.isdecimal():
                    raise ModelError(f"line {number} of '{path}' is not 'token count'.")
                if word in words:
                    # fairseq would give it two ids.
                    raise ModelError(f"line {number} of '{path}' repeats '{word}'.")
                words[word] = None
    except (OSError, UnicodeError) as error:
        raise ModelError(f"cannot read the dictionary '{path}': {error}.") from error
    return list(words)


def word_level_tokenizer(words: Sequence[str]) -> Any:
    """Return a tokenizer of space-separated subwords; decoding joins those that end in `@@`."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=UNKNOWN)
    )
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace(Regex(r"\z"), " "),
            decoders.Fuse(),
            decoders.Replace(f"{CONTINUES} ", ""),
            decoders.Replace(Regex(r" +\z"), ""),
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=BEGIN,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        mask_token=MASK,
        clean_up_tokenization_spaces=False,
    )


def _checkpoint_file(path: Path) -> Path:
    if path.is_file():
        return path
    files = sorted(path.glob("checkpoint*.pt"))
    if not files:
        raise ModelError(f"'{path}' has no checkpoint*.pt; give a folder with one, or the file.")
    best = path / "checkpoint_best.pt"
    if len(files) > 1 and best not in files:
        raise ModelError(f"'{path}' has {len(files)} checkpoints; name one of the files.")
    return best if best in files else files[0]


def _dictionary_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("dict.*txt"))


def _merges_files(folder: Path) -> list[Path]:
    return [
        path
        for path in sorted(folder.iterdir())
        if path.name in ("code", "codes", "bpecodes") or path.suffix in (".code", ".codes")
    ]


def _vocabulary(folder: Path) -> list[str]:
    """Return the dictionary that source and target share."""
    paths = _dictionary_files(folder)
    if not paths:
        raise ModelError(f"'{folder}' has no dictionary; put the model's dict.*.txt there.")
    first, *others = (read_dictionary(path) for path in paths)
    if any(other != first for other in others):
        raise ModelError(
            f"the dictionaries in '{folder}' differ; only one for both languages is supported."
        )
    return first


def _tokenizer(folder: Path, words: list[str]) -> Any:
    tokenizer = word_level_tokenizer(words)
    paths = _merges_files(folder)
    if len(paths) > 1:
        raise ModelError(f"'{folder}' has {len(paths)} files of BPE codes; keep only the model's.")
    return BytePairTokenizer(tokenizer, Merges.read(paths[0])) if paths else tokenizer


def main(arguments: list[str] | None = None) -> None:
    """Convert one model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="fairseq model folder, or a checkpoint in one")
    parser.add_argument("--out", type=Path, required=True, help="model folder to write")
    given = parser.parse_args(arguments)
    try:
        convert(given.folder, given.out)
    except MaskovError as error:
        raise SystemExit(f"error: {error}") from error
    print(f"{given.out}: converted; `maskov translate --model {given.out}` loads it")


if __name__ == "__main__":
    main()
