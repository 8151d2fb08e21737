"""Wheel and source archive: whole, valid, and enough for somebody without the repository."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from doc_examples import ROOT, blocks
from maskov.version import __version__

pytestmark = pytest.mark.slow  # a minute or two


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the source archive, and the wheel that was built from it."""
    for name in ("build", "hatchling", "twine"):
        pytest.importorskip(name)
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("*.tar.gz")), next(out.glob("*.whl"))


def _package():
    folder = ROOT / "src" / "maskov"
    every = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(ROOT / "src").as_posix() for path in every}


def test_both_pass_twine(built):
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, built)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_holds_the_package_and_nothing_else(built):
    info = f"maskov-{__version__}.dist-info"
    about = {"METADATA", "WHEEL", "RECORD", "entry_points.txt"}
    about |= {"licenses/LICENSE", "licenses/LICENSE-WEIGHTS"}
    assert built[1].stat().st_size <= 60e6
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
    assert names == _package() | {f"{info}/{name}" for name in about}
    for needed in (
        "maskov/py.typed",
        "maskov/models/pretrained/wiki-any/model.safetensors",
        "maskov/models/pretrained/wiki-judge/model.safetensors",
        "maskov/models/pretrained/wiki-genre/model.safetensors",
    ):
        assert needed in names
    assert {Path(name).suffix for name in names if "/ui/" in name} >= {".py", ".js", ".css"}


def test_the_source_archive_holds_what_it_should(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in _package()} <= names
    files = {"README.md", "LICENSE", "CITATION.cff", "mkdocs.yml", "docs/index.md", "Makefile"}
    files |= {"examples/first-samples.ipynb"}
    assert files <= names
    first = {name.partition("/")[0] for name in names}
    assert first <= {
        ".gitignore", "CHANGELOG.md", "CITATION.cff", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md",
        "LICENSE", "LICENSE-WEIGHTS", "Makefile", "PKG-INFO", "README.md", "SECURITY.md",
        "constraints.txt", "docs", "examples", "experiments", "mkdocs.yml", "pyproject.toml",
        "benchmarks", "recipes", "src", "tests",
    }  # fmt: skip


@pytest.fixture(scope="module")
def stranger(built, tmp_path_factory):
    """An environment outside the repository with the wheel; return how to run a program in it.

    Its dependencies are those of this environment, so that nothing is downloaded.
    """
    folder = tmp_path_factory.mktemp("stranger")
    environment = folder / "venv"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"]
    command += ["--no-index", "--disable-pip-version-check", "--quiet", str(built[1])]
    done = subprocess.run(command, capture_output=True, text=True, env=_clean())
    assert done.returncode == 0, done.stdout + done.stderr
    packages = next((environment / "lib").glob("python*/site-packages"))
    # Afterwards, and as a plain path: the editable install of the tests must not count.
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    home = folder / "home"
    home.mkdir()

    def run(program, *words):
        return subprocess.run(
            [str(environment / "bin" / program), *words],
            cwd=home,
            env=_clean() | {"HOME": str(home), "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
        )

    yield run
    shutil.rmtree(folder)


def _clean():
    """Return the environment without what would lead back to the repository."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MASKOV_")}
    return {name: value for name, value in kept.items() if name not in ("PYTHONPATH", "COLUMNS")}


def _printed(done):
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_stranger_has_the_wheel(stranger):
    where = _printed(stranger("python", "-c", "import maskov; print(maskov.__file__)"))
    assert "stranger" in where
    assert str(ROOT) not in where
    assert _printed(stranger("maskov", "--version")) == f"maskov {__version__}\n"


def test_the_python_of_the_readme(stranger):
    examples = (block for block in blocks(ROOT / "README.md") if block.language == "python")
    first = next(block for block in examples if "not run" not in block.marks)
    assert "maskov.sample(" in first.code
    assert _printed(stranger("python", "-c", first.code)).strip()


def test_the_first_commands(stranger):
    small = ("--chains", "2", "--epochs", "4", "--quiet")
    out = _printed(stranger("maskov", "sample", *small, "--length", "6", "--out", "run", "--json"))
    assert {json.loads(line)["chain"] for line in out.splitlines()} == {0, 1}
    _printed(stranger("maskov", "report", "run", "--out", "report.html"))
    template = "the [MASK] [MASK] on the table ."
    assert "on the table" in _printed(stranger("maskov", "infill", template, *small))
    texts = "from pathlib import Path; Path('texts.txt').write_text('the cat sat .\\n')"
    _printed(stranger("python", "-c", texts))
    out = _printed(stranger("maskov", "score", "texts.txt", "--energy", "norm", "--json"))
    assert json.loads(out)["text"] == "the cat sat ."


def test_translation_says_how_to_get_a_model(stranger):
    german = "from pathlib import Path; Path('german.txt').write_text('der hund .\\n')"
    _printed(stranger("python", "-c", german))
    done = stranger("maskov", "translate", "german.txt", "--pair", "de-en")
    assert done.returncode == 2
    assert "MASKOV_MODELS" in done.stderr
