"""The pages of the viewer, their API, the port that they are served on, and runs that they start.

No request path reaches the file system: only the server maps names of files and ids of runs to
paths. With a token every path starts with it; all others are 404.

Pages start small runs, each by `maskov sample --out` in its own process. Its progress is read from
the run folder, which stays as a run like any other.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Annotated, Any, Literal

import uvicorn
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Body, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.middleware.trustedhost import TrustedHostMiddleware

from maskov.config import check_name
from maskov.errors import InputError, MaskovError, reason_of, refuse, required
from maskov.models import DEFAULT_MODEL
from maskov.parts import written
from maskov.runs import Run
from maskov.shipped import listed
from maskov.ui.detokenise import spelled
from maskov.ui.report import build, json_safe, to_page
from maskov.ui.viewer.runs import OpenedRun, Player, RunList, id_of, overview, stamp_of, verdict

# The addresses that no other machine reaches.
LOOPBACK = ("localhost", "127.0.0.1", "::1")
LONGEST_BODY = 4 * 1024
# Connections from which on requests are refused, and the bytes of a request's headers.
MOST_CONNECTIONS, _LONGEST_HEADERS = 1000, 16 * 1024
HEADERS = {
    # Only our own files, nothing inline, no framing.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # The address of a page may contain a token.
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_PAGES = {"": "runs.html", "run": "run.html", "live": "live.html"}
# Styles and charts are shared with reports.
_FILES = {
    file.name: file
    for package in ("report", "viewer")
    for file in (Path(__file__).parents[1] / package / "static").iterdir()
}
_MISSING = partial(HTTPException, 404)
_STOPPING_SECONDS = 10.0
# Pages and the progress of a run have all other threads. The player replays one epoch at a time,
# and waits while a model is loaded.
_READING_THREADS, _REPLAYING_THREADS = 8, 2
# Runs that one server starts in all, so that a page cannot fill the disk.
MOST_STARTED = 50
_LONGEST_SAID = 1 << 20
MOST_CHAINS, MOST_EPOCHS, MOST_TOKENS = 16, 200, 64
LONGEST_TEXT, LONGEST_RULE, LONGEST_NAME = 500, 200, 100
# What is seen of a run before its first epoch has ended.
_NOTHING: dict[str, Any] = {
    "epoch": 0, "passes": 0, "chains": [], "accepted": None, "novel": None, "energy_raw": [],
    "energy_norm": [],
}  # fmt: skip
METHODS = {
    "mh": "Metropolis–Hastings: exact",
    "gibbs": "degenerate Gibbs: accepts everything, has no target",
    "mask-predict": "mask-predict: greedy, has no target",
}


class RunRequest(BaseModel):
    """The settings of a run, validated strictly; unknown fields are refused.

    With a `text`, chains start from it and have its length; `freeze` names those of its tokens that
    stay. `prefix` is a text that the model reads before every sequence.
    """

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    model: str = Field(default=DEFAULT_MODEL, max_length=100)
    method: Literal["mh", "gibbs", "mask-predict"] = "mh"
    energy: Literal["raw", "norm"] = "raw"
    chains: int = Field(default=6, ge=1, le=MOST_CHAINS)
    length: int = Field(default=16, ge=1, le=MOST_TOKENS)
    epochs: int = Field(default=30, ge=1, le=MOST_EPOCHS)
    temperature: float = Field(default=1.0, ge=0.1, le=5.0)
    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    name: str = Field(default="", max_length=LONGEST_NAME)
    text: str = Field(default="", max_length=LONGEST_TEXT)
    freeze: str = Field(default="", max_length=LONGEST_RULE)
    prefix: str = Field(default="", max_length=LONGEST_RULE)

    def check(self) -> None:
        """Refuse what the fields alone cannot tell."""
        check_name(self.name)
        refuse(
            (
                any(ord(sign) < 32 for sign in self.text + self.freeze + self.prefix),
                "give the text, frozen tokens and prefix as one line each.",
            ),
            (self.model not in known_models(), "no such model on this server."),
            (
                self.freeze and not self.text,
                "frozen tokens are those of a text: give one to start from.",
            ),
            # The command would read it: a page must not name files of this machine.
            (
                os.path.isfile(self.freeze),
                "frozen tokens are positions, words or re:PATTERN, not a file.",
            ),
            (
                self.text and self.method == "mask-predict",
                "mask-predict starts from all masked: leave the text empty.",
            ),
        )

    def arguments(self, out: Path, device: str) -> list[str]:
        """Return the arguments of `maskov sample`; a starting text is its standard input."""
        # Every epoch is a sample, so that the page can show the chains after each.
        given: dict[str, Any] = {
            "model": self.model + f"(prefix={written(self.prefix)})" * bool(self.prefix),
            "kernel": self.method, "chains": self.chains, "thin": 1, "epochs": self.epochs,
            "seed": self.seed, "name": self.name, "freeze": self.freeze, "out": out,
            "device": device, "burn-in": 0,
        }  # fmt: skip
        given |= {"start-text": "-"} if self.text else {"length": self.length}
        if self.method == "mh":
            given |= {"energy": self.energy, "moves": "site"}
        if self.method != "mask-predict":
            given["proposal"] = f"temperature={self.temperature}"
        # One word for each option: a value that begins with a dash is not an option.
        return ["sample", *(f"--{name}={one}" for name, one in given.items() if one != "")]


def known_models() -> dict[str, str]:
    """Return the names and summaries of the models that a page may run."""
    return {model.name: model.summary for model in listed() if model.kind == "masked"}


class LiveRun:
    """A process and what its run folder says of its progress."""

    def __init__(self, request: RunRequest, path: Path, device: str) -> None:
        self._request, self._path = request, path
        self._begun = time.monotonic()
        self._asked_to_stop = False
        self._said = TemporaryFile()  # noqa: SIM115 - kept as long as the run is shown
        self._process = subprocess.Popen(
            [sys.executable, "-m", "maskov", *request.arguments(path, device)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            start_new_session=True,  # Ctrl-C of the server reaches it once, by `stop`
        )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(request.text.encode())

    def stop(self, patience: float = 0.0) -> None:
        """Ask the run to save and stop; if given patience, end it when that has passed."""
        if self.running and not self._asked_to_stop:  # a second signal would not save
            self._asked_to_stop = True
            self._process.send_signal(signal.SIGINT)
        if patience:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
            self._process.kill()
            self._process.wait()

    @property
    def running(self) -> bool:
        """Whether the process is still going."""
        return self._process.poll() is None

    def progress(self) -> dict[str, Any]:
        """Return what is known of the run so far."""
        running = self.running  # before the folder is read, so that the last state is the whole
        saved = (self._path / "manifest.json").is_file()
        seen = _NOTHING
        with suppress(MaskovError):  # it may be read while it is being written, or before
            seen = self._seen(Run.open(self._path))
        # The position of the file is the process's, too.
        said = os.pread(self._said.fileno(), _LONGEST_SAID, 0)
        lines = said.decode(errors="replace").splitlines()
        epoch = seen["epoch"]
        known, since = running and epoch > 0, max(time.monotonic() - self._begun, 1e-9)
        status, message = "sampling" if saved else "loading the model", ""
        if not running:
            ended = "stopped" if self._asked_to_stop else "failed"
            status = "finished" if self._process.returncode == 0 else ended
        if status == "failed":
            message = (lines or ["the process was ended"])[-1].removeprefix("maskov: ")
        return {
            "id": id_of(self._path),
            "name": self._path.name,
            "title": self._request.name or self._path.name,
            "request": self._request.model_dump(),
            "saved": saved,
            "running": running,
            "status": status,
            "message": message,
            "notes": [line[6:] for line in lines if line.startswith("note: ")],
            "per_second": seen["passes"] / since if known else None,
            "seconds_left": since / epoch * (self._request.epochs - epoch) if known else None,
            **json_safe(seen),
        }

    def _seen(self, run: Run) -> dict[str, Any]:
        """Return what the folder says after the latest epoch of which all samples are kept."""
        samples, traces, chains = run.samples, run.traces, run.manifest.chains
        done = len(samples) // chains
        if not done:
            self._begun = time.monotonic()  # loading does not count
            return _NOTHING
        steps = max(int(traces["steps"][done - 1].sum()), 1)
        return {
            "epoch": done,
            "passes": int(traces["passes"][:done].sum()),
            "chains": [
                {
                    "chain": one.chain,
                    "energy": getattr(one, f"energy_{self._request.energy}"),
                    "words": spelled(one.tokens),
                }
                for one in samples[(done - 1) * chains : done * chains]
            ],
            **{name: float(traces[name][done - 1].sum() / steps) for name in ("accepted", "novel")},
            **{
                name: traces[name][:done].mean(1).tolist() for name in ("energy_raw", "energy_norm")
            },
        }


class LiveRuns:
    """The runs that pages start: one at a time, up to MOST_STARTED in all."""

    def __init__(self, home: Path, device: str = "auto") -> None:
        self._home, self._device = home, device
        self._lock = Lock()
        self._started = 0
        self.current: LiveRun | None = None

    def start(self, request: RunRequest) -> LiveRun:
        """Start a run, unless one is going or too many were started."""
        with self._lock:
            refuse(
                (
                    self.current is not None and self.current.running,
                    "another run is going: stop it, or wait for it to end.",
                ),
                (
                    self._started >= MOST_STARTED,
                    f"this server has started {MOST_STARTED} runs, its maximum; restart it, or use "
                    "`maskov sample`.",
                ),
            )
            self._started += 1
            name = f"page-{datetime.now(UTC):%Y%m%d-%H%M%S}-{self._started:02d}"
            self.current = LiveRun(request, self._home / name, self._device)
            return self.current


# The server.


class Json(JSONResponse):
    """JSON in ASCII: UTF-8 lacks lone surrogates, which texts may hold."""

    def render(self, content: Any) -> bytes:
        """Return the JSON of plain data."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def create_app(
    run_list: RunList, player: Player, live: LiveRuns | None, *, token: str | None = None
) -> FastAPI:
    """Return the application; without `live` pages cannot start runs."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        if live is not None and live.current is not None:
            await to_thread.run_sync(live.current.stop, _STOPPING_SECONDS)

    app = FastAPI(
        lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False
    )
    # DNS rebinding: a foreign page may point its own host name at 127.0.0.1, but the browser still
    # sends that name in `Host`.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*LOOPBACK, "[::1]"])
    prefix = "" if token is None else f"/t/{token}"

    @app.middleware("http")
    async def guarded(request: Request, answer: Callable[..., Any]) -> Response:
        given = str(request.scope["path"])[: len(prefix) + 1]
        if not secrets.compare_digest(given.encode(), f"{prefix}/".encode()):
            response: Response = Json({"detail": "Not Found"}, 404)
        elif request.method == "POST" and (refusal := _refusal(request)) is not None:
            response = refusal
        else:
            response = await answer(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @app.exception_handler(MaskovError)
    async def refused(request: Request, error: Exception) -> Json:
        return Json({"detail": str(error)}, 422)

    @app.exception_handler(RequestValidationError)
    async def not_understood(request: Request, error: RequestValidationError) -> Json:
        # The reason must not echo the input, not even the name of an unknown field.
        first = error.errors()[0]
        where = [str(part) for part in first["loc"] if part in RunRequest.model_fields]
        return Json({"detail": ": ".join([*where, first["msg"]])}, 422)

    router = APIRouter(prefix=prefix)
    _add_runs(router, run_list, player)
    _add_live(router, live)

    @router.get("/")
    @router.get("/{name}")
    def page_or_file(name: str = "") -> FileResponse:
        return FileResponse(required(_FILES.get(_PAGES.get(name, name)), "Not Found", _MISSING))

    app.include_router(router)
    return app


def _refusal(request: Request) -> Json | None:
    """Refuse what a page of another origin sent, and what is not small JSON."""
    headers = request.headers
    kind = headers.get("content-type", "").split(";")[0].strip()
    # Browsers say which page sent this, other clients say nothing. The site is compared by the
    # browser, so that it is right behind a proxy, which may change the host.
    origin = headers.get("origin", f"http://{headers.get('host')}")
    site = "same-origin" if origin == f"http://{headers.get('host')}" else "cross-site"
    length = headers.get("content-length", "")
    rules = (
        (kind != "application/json", "send application/json", 415),
        (
            headers.get("sec-fetch-site", site) not in ("same-origin", "none"),
            "sent by another page",
            403,
        ),
        (
            not length.isdecimal() or int(length) > LONGEST_BODY,
            f"send at most {LONGEST_BODY} bytes, and their number",
            413,
        ),
    )
    return next((Json({"detail": why}, code) for wrong, why, code in rules if wrong), None)


def _in_threads(limiter: CapacityLimiter, handler: Callable[..., Any]) -> Callable[..., Any]:
    """Run a handler in one of a few threads; further requests wait without a thread."""

    @wraps(handler)
    async def run(**given: Any) -> Any:
        return await to_thread.run_sync(partial(handler, **given), limiter=limiter)

    return run


def _add_runs(router: APIRouter, run_list: RunList, player: Player) -> None:
    reading = partial(_in_threads, CapacityLimiter(_READING_THREADS))
    replaying = partial(_in_threads, CapacityLimiter(_REPLAYING_THREADS))

    def opened(run_id: str) -> OpenedRun:
        path = required(run_list.paths().get(run_id), "no such run", _MISSING)
        return OpenedRun(path, stamp_of(path), Run.open(path))

    @router.get("/report")
    @reading
    def report(run_id: Annotated[str, Query(alias="id", max_length=100)]) -> HTMLResponse:
        chosen = opened(run_id)
        html, policy = to_page(build([chosen.run], title=chosen.title))
        return HTMLResponse(
            html.encode("utf-8", "replace"),  # a lone surrogate cannot be encoded
            headers={"Content-Security-Policy": f"{policy}; frame-ancestors 'none'"},
        )

    @router.get("/api/runs")
    @reading
    def listed() -> Json:
        return Json(run_list.summaries())

    @router.get("/api/runs/{run_id}")
    @reading
    def run_overview(run_id: str) -> Json:
        return Json(overview(opened(run_id)))

    @router.get("/api/runs/{run_id}/verdict")
    @reading
    def run_verdict(run_id: str) -> Json:
        chosen = opened(run_id)
        return Json(verdict(chosen.path, chosen.stamp))

    @router.get("/api/runs/{run_id}/chains/{chain}")
    @replaying
    def chain_of(run_id: str, chain: int) -> Json:
        return Json(player.chain(opened(run_id), chain))

    @router.get("/api/runs/{run_id}/chains/{chain}/epochs/{epoch}")
    @replaying
    def epoch_of(run_id: str, chain: int, epoch: int) -> Json:
        return Json(player.epoch(opened(run_id), chain, epoch))


def _add_live(router: APIRouter, live: LiveRuns | None) -> None:
    @router.get("/api/choices")
    def offered() -> Json:
        return Json({
            "may_start": live is not None, "models": known_models(), "methods": METHODS,
            "fields": RunRequest.model_json_schema()["properties"],  # bounds and defaults
        })  # fmt: skip

    @router.get("/api/live")
    def seen() -> Json:
        current = None if live is None else live.current
        return Json({"status": "none"} if current is None else current.progress())

    @router.post("/api/live")
    def start(request: RunRequest) -> Json:
        runs = required(live, "this server starts no runs", partial(HTTPException, 403))
        request.check()
        return Json(runs.start(request).progress())

    @router.post("/api/live/stop")
    def stop(request: Annotated[dict[str, Any], Body(max_length=0)]) -> Response:
        current = None if live is None else live.current
        required(current, "no run was started", _MISSING).stop()
        return Response(status_code=204)


def listen(host: str, port: int) -> tuple[socket.socket, str]:
    """Open the port; return the socket and the address for browsers."""
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.create_server(where[:2], family=family)
    except (OSError, UnicodeError) as error:
        raise InputError(f"cannot listen on '{host}', port {port}: {reason_of(error)}.") from error
    name = f"[{host}]" if ":" in host else host
    return opened, f"http://{name}:{opened.getsockname()[1]}"


def server_of(app: FastAPI) -> uvicorn.Server:
    """Return a server of an application, which runs until Ctrl-C or SIGTERM."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",
            h11_max_incomplete_event_size=_LONGEST_HEADERS,
            limit_concurrency=MOST_CONNECTIONS,
            # Addresses contain tokens, which must not be logged.
            access_log=False,
            log_level="warning",
            proxy_headers=False,
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=5,
        )
    )
