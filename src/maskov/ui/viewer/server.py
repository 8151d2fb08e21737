"""The pages of the viewer, their API, and the port that they are served on.

No request path reaches the file system: only the server maps names of files and ids of runs to
paths. With a token every path starts with it; all others are 404.
"""

import json
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Body, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.middleware.trustedhost import TrustedHostMiddleware

from maskov.errors import InputError, MaskovError, reason_of
from maskov.ui.report import build
from maskov.ui.report.formats import to_page
from maskov.ui.viewer.live import LiveRuns, RunRequest, choices
from maskov.ui.viewer.runs import (
    OpenedRun,
    Player,
    RunList,
    overview,
    verdict,
)

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
_STOPPING_SECONDS = 10.0
# Pages and the progress of a run have all other threads. The player replays one epoch at a time,
# and waits while a model is loaded.
_READING_THREADS, _REPLAYING_THREADS = 8, 2


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
        if live is not None:
            await to_thread.run_sync(live.close, _STOPPING_SECONDS)

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
        path = _FILES.get(_PAGES.get(name, name))
        if path is None:
            raise HTTPException(404)
        return FileResponse(path)

    app.include_router(router)
    return app


def _refusal(request: Request) -> Json | None:
    """Refuse what a page of another origin sent, and what is not small JSON."""
    headers = request.headers
    if headers.get("content-type", "").split(";")[0].strip() != "application/json":
        return Json({"detail": "send application/json"}, 415)
    # Browsers say which page sent this, other clients say nothing. The site is compared by the
    # browser, so that it is right behind a proxy, which may change the host.
    origin = headers.get("origin", f"http://{headers.get('host')}")
    site = "same-origin" if origin == f"http://{headers.get('host')}" else "cross-site"
    if headers.get("sec-fetch-site", site) not in ("same-origin", "none"):
        return Json({"detail": "sent by another page"}, 403)
    length = headers.get("content-length", "")
    if not length.isdecimal() or int(length) > LONGEST_BODY:
        return Json({"detail": f"send at most {LONGEST_BODY} bytes, and their number"}, 413)
    return None


def _in_threads(limiter: CapacityLimiter) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run a handler in one of a few threads; further requests wait without a thread."""

    def decorate(handler: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(handler)
        async def run(**given: Any) -> Any:
            return await to_thread.run_sync(partial(handler, **given), limiter=limiter)

        return run

    return decorate


def _add_runs(router: APIRouter, run_list: RunList, player: Player) -> None:
    reading = _in_threads(CapacityLimiter(_READING_THREADS))
    replaying = _in_threads(CapacityLimiter(_REPLAYING_THREADS))

    def opened(run_id: str) -> OpenedRun:
        run = run_list.open(run_id)
        if run is None:
            raise HTTPException(404, "no such run")
        return run

    @router.get("/report")
    @reading
    def report(run_id: Annotated[str, Query(alias="id", max_length=100)]) -> HTMLResponse:
        chosen = opened(run_id)
        html, policy = to_page(build([chosen.run], title=chosen.title))
        content = html.encode("utf-8", "replace")  # a lone surrogate cannot be encoded
        headers = {"Content-Security-Policy": f"{policy}; frame-ancestors 'none'"}
        return HTMLResponse(content, headers=headers)

    @router.get("/api/runs")
    @reading
    def listed() -> Json:
        return Json(run_list.summaries())

    @router.get("/api/runs/{run_id}")
    @reading
    def run_overview(run_id: str) -> Json:
        chosen = opened(run_id)
        return Json(overview(chosen, player.why_not(chosen)))

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
        return Json({"may_start": live is not None, **choices()})

    @router.get("/api/live")
    def seen(after: Annotated[int, Query(ge=-1, le=2**62)] = -1) -> Json:
        current = None if live is None else live.current
        return Json(
            {"version": -1, "status": "none"} if current is None else current.progress(after)
        )

    @router.post("/api/live")
    def start(request: RunRequest) -> Json:
        if live is None:
            raise HTTPException(403, "this server starts no runs")
        request.check()
        return Json(live.start(request).progress())

    @router.post("/api/live/stop")
    def stop(request: Annotated[dict[str, Any], Body(max_length=0)]) -> Response:
        if live is None or live.current is None:
            raise HTTPException(404, "no run was started")
        live.current.stop()
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


def serve(app: FastAPI, opened: socket.socket) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    server_of(app).run(sockets=[opened])


def server_of(app: FastAPI) -> uvicorn.Server:
    """Return a server of an application."""
    config = uvicorn.Config(
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
    return uvicorn.Server(config)
