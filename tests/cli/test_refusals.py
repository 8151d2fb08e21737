"""What cannot be is refused: one sentence on standard error, code 2, nothing written."""

import os
import resource
import sys

import pytest
import torch

from forked import Forked
from maskov.cli import main
from maskov.errors import InputError
from small import tiny_bert

FILES = {
    "empty": b"",
    "gap": b"the cat\n\nthe dog\n",
    "mask": b"the [MASK] sat",
    "special": b"[CLS] the cat",
    "long": b"the " * 200,
    "bytes": b"the cat\n\xff\xfe\n",
    "templates": b"the [MASK]\nthe cat\n",
    "cities": b"the city of the river\nthe old city\n",
    "lines": b"the food is bad\nvery slow\n",
    "unknown": b"the food\n\nthe moon\n",
    "wide": b"the food\n" + b"very " * 40 + b"\n",
    "red": b"red\n",
    "late": b"\nred\n\n \n" + b"red " * 10 + b"\n",
    "damaged/manifest.json": b"[1]",
    "mine/thesis.tex": b"precious",
    "one.fa": b">one\nEVQL\n",
    "gap.fa": b">a\nEVQL\n>b\nEV-QL\n",
    "star.fa": b">a\nEV*QL\n",
    "letter.fa": b">a\nEVQL\n>b\nEVJQ\n",
    "headless.fa": b"EVQL\n",
    "twice.fa": b">a\nEVQL\n>a\nEVQL\n",
    "long.fa": b">a\n" + b"EVQL" * 100,
    "blank.fa": b">a\nEV__VE\n",
    "translations": b"the cat\n\na dog\n",
    "references": b"the cat\na bird\nthe dog\n",
    "short": b"the cat\n",
    "bad.jsonl": b'{"text": "a"}\n\n',
    "chains.jsonl": b"".join(b'{"text": "a", "chain": %d}\n' % (n // 3) for n in range(6)),
}

# Commands, more of their words, and what the refusal says.
REFUSED = {
    "sample --epochs 2 --chains 2 --length 5 --out run": """
        --model ./nowhere                           | './nowhere'
        --model wiki-an                             | Did you mean 'wiki-any'?
        --model tiny-translation                    | `maskov translate`
        --architecture masked-diffusion             | NAME(architecture=
        --mask-token-id=5                           | NAME(mask_token_id=
        --kernel metropolis                         | unknown kernel 'metropolis'
        --kernel gibbs --moves span                 | gibbs moves sites
        --kernel gibbs --energy norm                | drop --energy
        --kernel gibbs --target-temperature 0.5     | no target
        --kernel mask-predict --energy norm         | drop --energy
        --kernel mask-predict --proposal top_p=0.5  | most probable
        --kernel mask-predict --moves site          | most probable
        --kernel mask-predict --start greedy        | all masked
        --delayed -3                                | more and more
        --delayed near                              | numbers of positions
        --delayed 2 --kernel gibbs                  | accepts everything
        --moves walk                                | unknown move 'walk'
        --moves site:0                              | above 0
        '--moves=site(blok=4)'                      | takes order, block
        '--moves=span(x)'                           | span(1:3)
        '--moves=span(3:2)'                         | at least one position
        '--moves=span(block=2)'                     | takes sizes
        '--moves=resize(2)'                         | takes no arguments
        --moves insert-delete                       | range of lengths
        '--moves=site(order=left-to-right),insert-delete' --length 4:8 | have no order
        '--moves=site(order=backwards)'             | unknown order
        --start nowhere                             | unknown start
        --start-text red --length 5                 | own lengths
        --precision half                            | unknown precision 'half'
        --precision bfloat16 --model counterexample | drop --precision
        --device abacus                             | not available
        --model 'untrained(tokenizer=nowhere)'      | drop the tokenizer
        --energy heat                               | unknown energy 'heat'
        --energy no_such_module:Part                | cannot import 'no_such_module'
        '--energy=autoregressive(./nowhere)'        | no causal language model
        --proposal temperature=0                    | temperature of 0
        --proposal temperature=hot                  | temperature=0.8
        --proposal top_p=1.5                        | top-p
        --proposal top_k=0                          | top-k
        --proposal epsilon=2                        | epsilon
        --target-temperature 0                      | target temperature
        --target-temperature 1:0.1:0.5:3            | START:FALL:FLOOR
        --target-temperature 1:-1                   | 0 or more
        --target-temperature 1:nan                  | finite
        --target-temperature 1:0.1:2                | below its floor
        '--moves=site(block=6)'                     | shortest sequence
        '--moves=site(block=0)'                     | block
        --length 0                                  | not a range
        --length 9:3                                | not a range
        --length five                               | not a number or a range
        --length 5:                                 | not a number or a range
        --length 1000                               | out of range
        --length 4:8 --length-prior flat            | no move changes the length
        --length 4:8 --moves span,insert-delete --length-prior short   | 'short' is not valid
        --length 4:8 --moves span,insert-delete --length-prior 4:0,8:1 | above 0
        --chains 0                                  | at least one chain
        --chains 99999999999                        | more than one run can trace
        --epochs 99999999 --chains 99               | more than one run can trace
        --epochs 0                                  | at least one epoch
        --resident 0                                | --resident must be at least 1
        --threads 99999                             | threads
        --burn-in 2                                 | burn-in
        --force-accept 3                            | 0 to 2
        --thin 5                                    | no sample would be kept
        --checkpoint-every nan                      | 0 seconds or more
        --token-budget 0                            | --token-budget
        --seed -3                                   | seed
        --freeze 1                                  | --start-text
        --model 'untrained(extra_letters=X)'        | drop extra_letters
        --out mine                                  | already holds something else
        --out gap                                   | already holds something else
        --out /dev/null/run                         | cannot write the run folder
        --name "two\\nlines\t"                      | one line
        --name " spaced"                            | without spaces around it
        --name LONG                                 | 100
    """,
    "sample --epochs 2 --chains 2 -q": """
        --name mine                                 | --out
        --max-changes 2                             | give one with --start-text
        --kernel mask-predict --contains river      | does not keep constraints
        --contains river,                           | a word to contain is empty
        --allow river                               | not a rule of allowed tokens
        --contains river --avoid river              | contains 'river' and avoids
        --start-text nowhere.txt                    | cannot read
        --start-text cities --freeze 're:(?<=a)b'   | no lookaround
        --start-text cities --freeze city --moves span,insert-delete --length 2:9 | drop --length
        --start-text one.fa                         | single letters
        --model @esm --contains AX                  | extra_letters=X
        --model @esm --allow 1:AX                   | extra_letters=X
        --model '@esm(extra_letters=J)'             | 'J' is not an extra letter
        --model @esm --start-text blank.fa          | blank '_'
    """,
    "sample --particles 4": """
        --chains 4                                  | --chains
        --epochs 4                                  | --epochs
        --thin 2                                    | --thin
        --until converged                           | --until
        --moves span:1,insert-delete:1              | keep their lengths
        --populations 0                             | --populations
        --target-temperature 1:0.1:0.5              | fixed
        --kernel gibbs                              | gibbs
        --resident 2                                | --resident
    """,
    "infill": """
        nowhere.txt                                 | neither a template nor a file
        "the [MASK] xyzzy"                          | [UNK]
        "the [SEP] [MASK]"                          | [SEP]
        "the <mask> sat"                            | write [MASK]
        "the [MASK{5,2}]"                           | has no length
        "the [MASK{0,2}]"                           | has no length
        "the [MASK*]" --moves span                  | moves that change the length
        "the [MASK]" --moves insert-delete          | blank of unknown length
        "the [MASK]" --length-prior none            | no blank has an unknown length
        "the [MASK]" --length-prior none -c 2       | no move changes the length
        "the [MASK]" --whole-words -c 2             | chains have no use
        "the [MASK*] [MASK*] [MASK*]"               | more than 128 lengths
        "the _ man ."                               | no blank
        "the [MASK] [MASK]" --contains "cat, old, river" | no text can fill the blanks
        templates                                   | template 2 has no blank
        [MASK] --model tiny-translation             | `maskov translate`
    """,
    "score": """
        nowhere.txt                                 | cannot read 'nowhere.txt'
        no/where                                    | cannot read 'no/where'
        empty                                       | is empty
        gap                                         | line 2 is empty
        mask                                        | holds a mask
        special                                     | [CLS]
        long                                        | has 200 tokens
        bytes                                       | not UTF-8 text (line 2)
        "the cat" one.fa                            | not both
        one.fa                                      | single letters
        "the [MASK] sat" -e autoregressive -m wiki-judge | special token
        "E V Q L" -m @bare                          | tokenizer=vocab.txt
        "EV__VE" -m @esm                            | blank '_'
        red --model tiny-translation                | `maskov translate`
    """,
    "score -m '@bert(tokenizer=@bert/vocab.txt)'": """
        gap.fa                                      | 'b' has a gap '-' at position 3
        letter.fa                                   | 'b' has 'J' at position 3
        headless.fa                                 | no header
        twice.fa                                    | two records 'a'
        long.fa                                     | 'a' has 400 tokens
    """,
    "rewrite --model @masked --toward contains('good') --out out": """
        empty                                       | is empty
        bytes                                       | not UTF-8 text (line 2)
        unknown                                     | line 3 holds '[UNK]'
        wide                                        | line 2 has 40 tokens
        mask                                        | line 1 holds
        nowhere.txt                                 | cannot read 'nowhere.txt'
        one.fa --model untrained                    | single letters
        lines --toward happy                        | unknown energy
        lines --toward 'classifier(wiki-judge, label=1)'      | not a classifier
        lines --toward 'classifier(@classifier, label=happy)' | negative, positive
        lines --strength -1                         | 0 or more
        lines --keep -1                             | 0 or more
        lines --target-temperature 0                | above 0
        lines --epochs 0                            | epoch
        lines --moves walk                          | walk
        lines --pick best                           | unknown pick 'best'
        lines --freeze bridge                       | occurs in no text
        lines --out damaged                         | damaged
        lines --out mine                            | already holds something else
        lines --out gap                             | gap'
    """,
    "rewrite": """
        "the food" --model @masked --toward edit --chains 0 | chain
        lines --model @masked --contains slow --max-changes 0 | cannot meet contains(slow)
    """,
    "rewrite --model '@bert(tokenizer=@bert/vocab.txt)' --toward matches('A')": """
        gap.fa                                      | 'b' has a gap '-' at position 3
        star.fa                                     | 'a' has '*' at position 3
        blank.fa                                    | blank '_'
        one.fa --toward "contains('A', 'NG')"       | write 'N G'
        one.fa --fluency "norm+avoids('NG')"        | write 'N G'
        one.fa --toward autoregressive              | 'wiki-judge' reads English
        one.fa --freeze 1-9                         | text 1 has 4 tokens
    """,
    "translate red -q": """
        --model untrained                           | not a translation model
        --model tiny-twin                           | is autoregressive
        --model ./nowhere                           | './nowhere'
        --seed 1                                    | --pair de-en, or --model
        --pair en-de                                | use one of de-en, ro-en
        --model @shelf/tiny-translation --method mh --energy norm+autoregressive | the languages
    """,
    "translate red -q --pair de-en": """
        --pair ro-en --method ar                    | use one of de-en
        --pair ro-en --method mh --lengths sampled  | predicted_length
        --method beam                               | unknown method 'beam'
        --method mh --beam 3                        | does not use --beam
        --method mh --energy norm --autoregressive tiny-twin | no use of --autoregressive
        --method mh --energy autoregressive(tiny-translation) | is a masked model
        --method mh --drafts nowhere.txt            | cannot read 'nowhere.txt'
        --method mh --start drafts                  | --drafts FILE
        --method greedy --iterations 3              | does not use --iterations
        --method gibbs --energy norm                | does not use --energy
        --method ar --chains 2                      | does not use --chains
        --method ar --out run                       | no use of --out
        --method ar --token-budget 9                | drop it
        --method ar --workers 2                     | 'ar'
        --method ar --resident 3                    | 'ar'
        --method ar --autoregressive tiny-translation | needs an autoregressive one
        --method ar --autoregressive ./nowhere       | 'nowhere'
        --epochs 3                                  | does not use --epochs
        --drafts red                                | does not use --drafts
        --autoregressive tiny-twin                  | no use of --autoregressive
        --token-budget 0                            | --token-budget must be at least 1
        --seed -1 --out run                         | seed
        --precision half                            | unknown precision
        --device abacus                             | not available
        --length-beam 99                            | has only 10 lengths
    """,
    "translate --pair de-en": """
        empty                                       | is empty
        bytes                                       | not UTF-8 text (line 2)
        late                                        | line 5 has 10 tokens
        late --method ar                            | line 5 has 10 tokens
        nowhere.txt                                 | cannot read 'nowhere.txt'
    """,
    "evaluate": """
        nowhere --references references             | cannot read 'nowhere'
        . --references references                   | '.' is a folder
        translations --references nowhere           | cannot read 'nowhere'
        translations --references empty             | 'empty' is empty
        translations --references bytes             | not UTF-8 text (line 2)
        translations --references references --judge @judge | sentence 2 is empty
        translations --references references --training red | give --judge
        short --references references               | translations is 1, that of references 3
        chains.jsonl --references references        | 6 translations from 2 chains
        bad.jsonl --references references           | line 2 of 'bad.jsonl'
        empty --judge @judge                        | is empty
        gap --judge @judge                          | sentence 2 is empty
        long --judge @judge                         | takes at most 24
        bytes --judge @judge                        | not UTF-8 text (line 2)
        bad.jsonl --judge @judge                    | line 2 of
        nowhere --judge @judge                      | cannot read 'nowhere'
        mine --judge @judge                         | not a run folder
        short --judge @judge --training nowhere     | cannot read 'nowhere'
        short --judge ./nowhere                     | no causal language model
        short --judge untrained                     | 'untrained' is a masked model
        short --judge @judge --device abacus        | not available
        short --judge @judge --token-budget 0       | at least 1, not 0
    """,
    "resume nowhere": "| not a run folder",
    "diagnose nowhere": "| not a run folder",
}  # fmt: skip
CASES = [
    (command, *(part.strip() for part in line.rsplit("|", 1)))
    for command, table in REFUSED.items()
    for line in table.strip().splitlines()
]


@pytest.fixture(autouse=True)
def _files(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)


@pytest.mark.parametrize(("command", "words", "phrase"), CASES)
def test_what_cannot_be_is_refused(command, words, phrase, refused):
    assert phrase in refused(f"{command} {words.replace('LONG', 'x' * 101)}")


@pytest.mark.parametrize("line", [
    "evaluate - --references -", "translate - --pair de-en --method mh --drafts -",
])  # fmt: skip
def test_standard_input_is_read_once(line, refused):
    assert "both" in refused(line, stdin="a\n")


def test_extras_and_models_that_are_missing_are_named(refused, call, monkeypatch):
    for name in ("sacrebleu", "sacrebleu.metrics.bleu"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "pip install '.[evaluate]'" in refused("evaluate gap --references gap")
    monkeypatch.setenv("MASKOV_MODELS", "nowhere")
    assert "MASKOV_MODELS" in refused("translate red --pair de-en")


def test_weights_that_are_not_numbers_are_one_sentence(refused, tmp_path):
    model = tiny_bert(dtype=torch.float32)
    model.network.bert.embeddings.word_embeddings.weight.data.fill_(torch.nan)
    model.network.save_pretrained(tmp_path / "model")
    model.tokenizer.save_pretrained(tmp_path / "model")
    assert "NaN" in refused("score 'red green' --model model")
    assert "NaN" in refused("sample -n 2 -c 2 --length 5 --model model -q")


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path):
    words = ["sample", "-m", "untrained", "-n", "2", "--length", "5", "--out", f"{tmp_path}/run"]
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (60, 60))  # noqa: E731
    code, _, err = Forked(words, before=limit).end()
    assert (code, "cannot write the run folder" in err, "Traceback" in err) == (2, True, False)
    assert not (tmp_path / "run").exists()
    with open("/dev/full", "w") as full:
        process = Forked(["models", "--json"], before=lambda: os.dup2(full.fileno(), 1))
        assert process.end() == (2, "", "maskov: no space left on device.\n")


def test_debug_shows_the_traceback():
    with pytest.raises(InputError):
        main(["sample", "--proposal", "top_p=3", "--debug"])
