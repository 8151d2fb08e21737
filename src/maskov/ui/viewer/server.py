"""The pages of the viewer and their API.

No request path reaches the file system: static files are read at startup, and only the server maps
run ids to folders. With a token every path starts with it; all others are 404.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict

from maskov.errors import MaskovError
from maskov.ui.viewer.details import RunSummaries, Verdicts, overview, report_page
from maskov.ui.viewer.live import LiveRuns, RunRequest, choices
from maskov.ui.viewer.player import Player
from maskov.ui.viewer.run_list import OpenedRun, RunList
from maskov.ui.viewer.sample_list import SORTS, SampleLists, SampleQuery
from maskov.ui.web.requests import RequestThreads, StaticFiles, json_response, read
from maskov.ui.web.security_headers import SecurityHeaders

LONGEST_BODY = 4 * 1024
_PAGES = {"": "runs.html", "run": "run.html", "live": "live.html"}
_OWN = (
    "views.css", "player.css", "common.js", "tokens.js", "runs.js", "run.js", "player.js",
    "decision.js", "samples.js", "live.js", "icon.svg",
)  # fmt: skip
# Styles and charts shared with reports.
_SHARED = ("report.css", "charts.css", "scales.js", "drawing.js", "charts.js", "theme.js")
_STOPPING_SECONDS = 10.0
# Pages and the progress of a run have all other threads.
_READING_THREADS, _REPLAYING_THREADS = 8, 2


class EmptyRequest(BaseModel):
    """A request without content."""

    model_config = ConfigDict(extra="forbid")


def create_app(
    run_list: RunList,
    player: Player,
    live: LiveRuns | None,
    *,
    token: str | None = None,
) -> FastAPI:
    """Return the application; without `live` pages cannot start runs."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        if live is not None:
            await run_in_threadpool(live.close, _STOPPING_SECONDS)

    app = FastAPI(
        lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False
    )
    app.add_middleware(SecurityHeaders, loopback=True)
    router = APIRouter(
        prefix="" if token is None else "/t/{token}", dependencies=[Depends(_require(token))]
    )
    _add_files(router)
    _add_runs(router, run_list, player)
    _add_live(router, live)
    app.include_router(router)

    @app.exception_handler(MaskovError)
    async def refused(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=422)

    @app.exception_handler(RequestValidationError)
    async def not_understood(request: Request, error: Exception) -> JSONResponse:
        # The default answer would echo the input.
        return JSONResponse({"detail": "invalid request"}, status_code=422)

    @app.exception_handler(405)
    async def nothing(request: Request, error: Exception) -> JSONResponse:
        # A 405 would tell those without the token that the path exists.
        return JSONResponse({"detail": "Not Found"}, status_code=404)

    return app


def _require(token: str | None) -> Any:
    def check(request: Request) -> None:
        given = request.path_params.get("token", "")
        if token is not None and not secrets.compare_digest(given.encode(), token.encode()):
            raise HTTPException(404)

    return check


def _add_files(router: APIRouter) -> None:
    own = StaticFiles("maskov.ui.viewer", (*_OWN, *_PAGES.values()))
    shared = StaticFiles("maskov.ui.report", _SHARED)
    for path, page in _PAGES.items():
        router.add_api_route(f"/{path}", partial(own.response, page), response_model=None)
    for files, names in ((own, _OWN), (shared, _SHARED)):
        for name in names:
            router.add_api_route(f"/{name}", partial(files.response, name), response_model=None)


def _add_runs(router: APIRouter, run_list: RunList, player: Player) -> None:
    # The player replays one epoch at a time, and waits while a model is loaded.
    reading, replaying = RequestThreads(_READING_THREADS), RequestThreads(_REPLAYING_THREADS)

    def opened(run_id: str) -> OpenedRun:
        run = run_list.open(run_id)
        if run is None:
            raise HTTPException(404, "no such run")
        return run

    @router.get("/report")
    async def report(run_id: Annotated[str, Query(alias="id", max_length=100)]) -> HTMLResponse:
        page = await reading.run(lambda: report_page(opened(run_id)))
        policy = f"{page.policy}; frame-ancestors 'none'"
        # A lone surrogate cannot be encoded.
        content = page.html.encode(errors="replace")
        return HTMLResponse(content, headers={"Content-Security-Policy": policy})

    summaries, verdicts, lists = RunSummaries(run_list), Verdicts(), SampleLists()

    @router.get("/api/runs")
    async def runs() -> Response:
        return await reading.run(lambda: json_response(summaries.all()))

    @router.get("/api/runs/{run_id}")
    async def run(run_id: str) -> Response:
        def told() -> Response:
            chosen = opened(run_id)
            return json_response(overview(chosen, player.why_not(chosen)))

        return await reading.run(told)

    @router.get("/api/runs/{run_id}/verdict")
    async def verdict(run_id: str) -> Response:
        return await reading.run(lambda: json_response(verdicts.of(opened(run_id))))

    @router.get("/api/runs/{run_id}/samples")
    async def run_samples(
        run_id: str,
        search: Annotated[str, Query(max_length=200)] = "",
        chain: Annotated[int | None, Query(ge=0, le=2**31)] = None,
        lowest: Annotated[float | None, Query(allow_inf_nan=False)] = None,
        highest: Annotated[float | None, Query(allow_inf_nan=False)] = None,
        sort: Annotated[str, Query(pattern=f"^({'|'.join(SORTS)})$")] = SORTS[0],
        descending: bool = False,
        offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        grouped: bool = False,
        group: Annotated[int | None, Query(ge=0, le=2**31)] = None,
    ) -> Response:
        query = SampleQuery(
            search, chain, lowest, highest, sort, descending, offset, limit, grouped, group
        )
        return await reading.run(lambda: json_response(lists.of(opened(run_id), query)))

    @router.get("/api/runs/{run_id}/chains/{chain}")
    async def chain_of(run_id: str, chain: int) -> Response:
        return await replaying.run(lambda: json_response(player.chain(opened(run_id), chain)))

    @router.get("/api/runs/{run_id}/chains/{chain}/epochs/{epoch}")
    async def epoch_of(run_id: str, chain: int, epoch: int) -> Response:
        return await replaying.run(
            lambda: json_response(player.epoch(opened(run_id), chain, epoch))
        )


def _add_live(router: APIRouter, live: LiveRuns | None) -> None:
    @router.get("/api/choices")
    def offered() -> dict[str, Any]:
        return {"may_start": live is not None, **choices()}

    @router.get("/api/live")
    def seen(after: Annotated[int, Query(ge=-1, le=2**62)] = -1) -> dict[str, Any]:
        current = None if live is None else live.current
        return {"version": -1, "status": "none"} if current is None else current.progress(after)

    @router.post("/api/live")
    async def start(request: Request) -> dict[str, Any]:
        run_request = await read(request, RunRequest, LONGEST_BODY)
        if live is None:
            raise HTTPException(403, "this server starts no runs")
        run_request.check()
        started = await run_in_threadpool(live.start, run_request)
        return started.progress()

    @router.post("/api/live/stop")
    async def stop(request: Request) -> Response:
        await read(request, EmptyRequest, LONGEST_BODY)
        if live is None or live.current is None:
            raise HTTPException(404, "no run was started")
        await run_in_threadpool(live.current.stop)
        return Response(status_code=204)
