"""Models that are fetched: from a file or an address, checked, unpacked safely, found by name."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from recipes.archive import pack

from maskov import fetching, shipped
from maskov.cli import main
from maskov.errors import InputError, ModelError
from maskov.fetching import Archive, fetch
from maskov.models import registry

ABOUT = {
    "name": "tiny",
    "kind": "translation",
    "summary": "a tiny model",
    "parameters": 1,
    "bytes": 1,
    "training_data": "none",
    "licence": "none",
    "quality": {},
    "pairs": ["de-en"],
}
FILES = {"about.json": json.dumps(ABOUT).encode(), "model.safetensors": bytes(5000)}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MASKOV_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MASKOV_MODELS", raising=False)
    return tmp_path / "cache" / "models"


@pytest.fixture
def known(tmp_path, monkeypatch):
    """Return a function that records bytes as the archive of 'tiny' and writes them to a file."""

    def record(content: bytes):
        archive = Archive("tiny", "tiny-1.tar", len(content), sha256(content).hexdigest())
        monkeypatch.setattr(fetching, "ARCHIVES", (archive,))
        (tmp_path / "tiny-1.tar").write_bytes(content)
        return str(tmp_path / "tiny-1.tar")

    return record


def tar(members=None, mode="w:"):
    """Return a tar of members: names with bytes, or with a TarInfo's fields."""
    buffer = io.BytesIO()
    members = members or {f"tiny/{name}": content for name, content in FILES.items()}
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            else:
                for field, value in content.items():
                    setattr(member, field, value)
                archive.addfile(member)
    return buffer.getvalue()


def nothing_is_left(cache):
    return not cache.exists() and not list(cache.parent.glob("incoming/*"))


def test_from_a_file(cache, known):
    steps = []
    folder = fetch("tiny", known(tar()), lambda done, total: steps.append((done, total)))
    assert folder == cache / "tiny"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES
    assert steps[-1][0] == steps[-1][1] == len(tar())
    assert not list(cache.parent.glob("incoming/*"))


def test_a_fetched_model_is_found_by_name_and_pair(cache, known):
    assert shipped.folder_of("tiny") is None
    fetch("tiny", known(tar()))
    assert shipped.folder_of("tiny") == cache / "tiny"
    assert shipped.is_name("tiny")
    assert "tiny" in [model.name for model in registry.listed()]


def test_a_model_of_the_clone_comes_before_a_fetched_one(cache, known, tmp_path, monkeypatch):
    own = tmp_path / "models" / "tiny"
    own.mkdir(parents=True)
    (own / "about.json").write_bytes(FILES["about.json"])
    monkeypatch.setattr(shipped, "REPOSITORY", tmp_path / "models")
    fetch("tiny", known(tar()))
    assert shipped.folder_of("tiny") == own
    assert [model.name for model in shipped.shipped()].count("tiny") == 1


def test_what_is_there_is_not_fetched_again(cache, known):
    fetch("tiny", known(tar()))
    assert fetch("tiny", "/nowhere/at-all.tar") == cache / "tiny"


def test_until_it_is_published_one_sentence_says_so(cache):
    with pytest.raises(ModelError, match=r"not published yet: .* MASKOV_MODELS .* --from\.$"):
        fetch("deroen-small")


def test_a_published_model_comes_from_its_place(cache, known, monkeypatch, server):
    known(tar())
    server.content = tar()
    monkeypatch.setattr(fetching, "PLACE", server.address)
    assert fetch("tiny") == cache / "tiny"
    assert server.paths == ["/tiny-1.tar"]


@pytest.mark.parametrize("change", ["shorter", "longer", "other", "endless"])
def test_other_bytes_are_refused(cache, known, server, change):
    right = tar()
    known(right)
    server.content = {
        "shorter": right[:-512],
        "longer": right + bytes(512),
        "other": bytes([right[0] ^ 1]) + right[1:],
        "endless": None,
    }[change]
    with pytest.raises(ModelError, match="size or hash differs"):
        fetch("tiny", f"{server.address}any")
    assert nothing_is_left(cache)
    assert shipped.folder_of("tiny") is None


@pytest.mark.parametrize(
    "members",
    [
        {"../evil": b"x"},
        {"tiny/../../evil": b"x"},
        {"/tmp/evil": b"x"},
        {"tiny/sub/file": b"x"},
        {"tiny/.hidden": b"x"},
        {"other/about.json": b"{}"},
        {"tiny": {"type": tarfile.DIRTYPE}},
        {"tiny/link": {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}},
        {"tiny/link": {"type": tarfile.LNKTYPE, "linkname": "../../evil"}},
        {"tiny/pipe": {"type": tarfile.FIFOTYPE}},
        {f"tiny/file{number}": b"" for number in range(40)},
        {"tiny/model.safetensors": b"no description"},
    ],
)
def test_whatever_is_no_model_is_not_unpacked(cache, known, tmp_path, members):
    with pytest.raises(ModelError, match="nothing was installed"):
        fetch("tiny", known(tar(members)))
    assert nothing_is_left(cache)
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("content", [b"no tar at all" * 100, tar(mode="w:gz"), tar()[:700]])
def test_what_is_no_plain_tar_is_not_unpacked(cache, known, content):
    with pytest.raises(ModelError, match="nothing was installed"):
        fetch("tiny", known(content))
    assert nothing_is_left(cache)


@pytest.mark.parametrize(
    "source", ["file:///etc/passwd", "ftp://localhost/x", "nowhere", "/dev/zero"]
)
def test_what_cannot_be_a_source_is_refused(cache, known, source):
    known(tar())
    with pytest.raises(InputError, match="is n"):
        fetch("tiny", source)


def test_an_address_that_does_not_answer_is_one_sentence(cache, known, server):
    known(tar())
    server.content = b""
    server.status = 404
    with pytest.raises(ModelError, match=r"could not be read: Not Found\.$"):
        fetch("tiny", f"{server.address}x")


def test_the_command(cache, known, capfd):
    file = known(tar())

    def call(*words):
        with pytest.raises(SystemExit) as end:
            main(["models", "fetch", *words])
        out, err = capfd.readouterr()
        return end.value.code or 0, out, err

    code, out, err = call("tiny")
    assert (code, out) == (2, "")
    assert err.startswith("maskov: the archive of 'tiny' is not published yet")
    code, out, err = call("tiny", "--from", file)
    assert (code, out) == (0, f"{cache / 'tiny'}\n")
    assert err.count("\n") == 1  # one chunk, one line
    assert call("tiny", "--quiet") == (0, f"{cache / 'tiny'}\n", "")
    assert "name one" in call("tiny", "tiny", "--from", file)[2]
    assert "there are tiny" in call("wiki-tiny")[2]


@pytest.mark.parametrize("archive", fetching.ARCHIVES, ids=lambda archive: archive.name)
def test_recorded_hashes_are_those_of_the_models_here(archive, tmp_path):
    folder = shipped.REPOSITORY / archive.name
    if not folder.is_dir():
        pytest.skip("not in a clone")
    assert pack(folder, tmp_path / archive.file) == (archive.bytes, archive.sha256)


@pytest.fixture
def server():
    """A server on this machine that answers every path with `content`; None has no end."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            server.paths.append(self.path)
            self.send_response(server.status)
            self.end_headers()
            try:
                while server.content is None:
                    self.wfile.write(bytes(1 << 16))
                self.wfile.write(server.content)
            except ConnectionError:
                pass  # the reader had enough

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.paths, server.content, server.status = [], b"", 200
    server.address = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
