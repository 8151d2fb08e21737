"""Long sentences alone are scored, from the texts that were kept."""

from __future__ import annotations

from experiments import long_sentences

SHORT, LONG = "a short one.", "a sentence of seven words in all, long."
OTHER = "a sentence == that has nine words, and is longer."


def test_only_long_references_count(tmp_path, capsys):
    (tmp_path / "set.deen.en").write_text(f"{SHORT}\n{LONG}\n{OTHER}\n== not scored\n")
    texts = tmp_path / "rows.txt"
    texts.write_text(f"== right\nwrong\n{LONG}\n{OTHER}\n== half\n{SHORT}\n{LONG}\nwrong\n")
    long_sentences.main([str(texts), str(tmp_path), "--set", "set.deen", "--above", "5"])
    right, half = capsys.readouterr().out.splitlines()
    assert right.split()[:3] == ["right", "BLEU", "100.0"]
    assert right.endswith("2 sentences")
    assert 0 < float(half.split()[2]) < 100
