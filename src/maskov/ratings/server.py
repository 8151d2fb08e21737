"""The page on which raters rate: every path begins with a rater's token, all else is 404.

The static files are read once, at the start, so that no path of a request reaches the file
system; the texts come from `items.json`, which knows no conditions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, RedirectResponse, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from maskov.ratings.scales import POINTS
from maskov.ratings.shield import Shield
from maskov.ratings.store import Answer
from maskov.ratings.study import Study

LONGEST_BODY = 8 * 1024
# Every character of it may take the six bytes that JSON has for a control character and still fit.
LONGEST_COMMENT = 1000
_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "rate.css": "text/css; charset=utf-8",
    "rate.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


class Given(BaseModel):
    """An answer as the page sends it; a number is a number, and nothing else may come along."""

    model_config = ConfigDict(strict=True, extra="forbid")

    item: int
    coherence: int = Field(ge=1, le=POINTS)
    fluency: int = Field(ge=1, le=POINTS)
    comment: str = Field(default="", max_length=LONGEST_COMMENT)


def create_app(study: Study, loopback: bool = True) -> FastAPI:
    """Make the application for one study; `loopback` also checks what host requests name."""
    store = study.store()
    known = {item.id for item in study.items}
    static = files("maskov.ratings") / "static"
    contents = {name: (static / name).read_bytes() for name in _TYPES}

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        store.close()

    app = FastAPI(
        lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False
    )
    app.add_middleware(Shield, loopback=loopback)

    def rater_of(token: str) -> str:
        rater = store.rater(token)
        if rater is None:
            raise HTTPException(404)
        return rater

    def page(token: str, name: str) -> Response:
        rater_of(token)
        return Response(contents[name], media_type=_TYPES[name])

    @app.get("/r/{token}")
    def without_slash(token: str) -> Response:
        rater_of(token)
        return RedirectResponse(f"/r/{token}/", status_code=308)

    @app.get("/r/{token}/")
    def index(token: str) -> Response:
        return page(token, "index.html")

    @app.get("/r/{token}/rate.css")
    def style(token: str) -> Response:
        return page(token, "rate.css")

    @app.get("/r/{token}/rate.js")
    def script(token: str) -> Response:
        return page(token, "rate.js")

    @app.get("/r/{token}/icon.svg")
    def icon(token: str) -> Response:
        return page(token, "icon.svg")

    @app.get("/r/{token}/study")
    def contents_of_study(token: str) -> dict[str, Any]:
        rater = rater_of(token)
        return {
            "rater": rater,
            "scales": [asdict(scale) for scale in study.scales],
            "longest_comment": LONGEST_COMMENT,
            "items": [asdict(item) for item in study.order(rater)],
            "answers": [
                {
                    "item": answer.item,
                    "coherence": answer.coherence,
                    "fluency": answer.fluency,
                    "comment": answer.comment,
                }
                for answer in store.answers(rater)
            ],
        }

    @app.post("/r/{token}/answers")
    async def answer(token: str, request: Request) -> dict[str, int]:
        rater = await run_in_threadpool(rater_of, token)
        given = _parse(await _body(request))
        if given.item not in known:
            raise HTTPException(422, "no such item")
        await run_in_threadpool(store.save, Answer(rater, **given.model_dump()))
        return {"item": given.item}

    @app.exception_handler(sqlite3.Error)
    async def not_saved(request: Request, error: Exception) -> JSONResponse:
        # A full disk, say. The page holds on to the answer and tries again.
        return JSONResponse({"detail": "not saved"}, status_code=503)

    return app


async def _body(request: Request) -> bytes:
    """Read a body, and give up on one that is too long before it is all here."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise HTTPException(415, "send application/json")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LONGEST_BODY:
            raise HTTPException(413, "too long")
    return body


def _parse(body: bytes) -> Given:
    try:
        return Given.model_validate_json(body)
    except ValidationError as error:
        # What was wrong, and never what was given: the name of an unknown field is left out too.
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = [str(part) for part in first["loc"] if part in Given.model_fields]
        raise HTTPException(422, ": ".join([*where, first["msg"]])) from error
