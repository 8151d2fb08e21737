"""The rating page: every path starts with a rater's token; all others are 404.

Static files are read once at startup, so that no request path reaches the file system. Texts come
from `items.json`, which does not contain the conditions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict

from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, RedirectResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from maskov.ui.ratings.scales import POINTS
from maskov.ui.ratings.store import Answer
from maskov.ui.ratings.study import Study
from maskov.ui.web.files import StaticFiles
from maskov.ui.web.json_response import json_response
from maskov.ui.web.requests import read
from maskov.ui.web.security_headers import SecurityHeaders

LONGEST_BODY = 8 * 1024
# Fits into the body even if JSON escapes every character with six bytes.
LONGEST_COMMENT = 1000
_FILES = ("index.html", "rate.css", "rate.js", "icon.svg")


class AnswerRequest(BaseModel):
    """An answer from the page, validated strictly; unknown fields are refused."""

    model_config = ConfigDict(strict=True, extra="forbid")

    item: int
    coherence: int = Field(ge=1, le=POINTS)
    fluency: int = Field(ge=1, le=POINTS)
    comment: str = Field(default="", max_length=LONGEST_COMMENT)


def create_app(study: Study, loopback: bool = True) -> FastAPI:
    """Return the application of one study; `loopback` also checks the Host header."""
    store = study.store()
    known = {item.id for item in study.items}
    static = StaticFiles("maskov.ui.ratings", _FILES)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        store.close()

    app = FastAPI(
        lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False
    )
    app.add_middleware(SecurityHeaders, loopback=loopback)

    def rater_of(token: str) -> str:
        rater = store.rater(token)
        if rater is None:
            raise HTTPException(404)
        return rater

    def page(token: str, name: str) -> Response:
        rater_of(token)
        return static.response(name)

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
    def contents_of_study(token: str) -> Response:
        rater = rater_of(token)
        contents = {
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
        return json_response(contents)

    @app.post("/r/{token}/answers")
    async def answer(token: str, request: Request) -> dict[str, int]:
        rater = await run_in_threadpool(rater_of, token)
        given = await read(request, AnswerRequest, LONGEST_BODY)
        if given.item not in known:
            raise HTTPException(422, "no such item")
        await run_in_threadpool(store.save, Answer(rater, **given.model_dump()))
        return {"item": given.item}

    @app.exception_handler(sqlite3.Error)
    async def not_saved(request: Request, error: Exception) -> JSONResponse:
        # For instance a full disk. The page keeps the answer and tries again.
        return JSONResponse({"detail": "not saved"}, status_code=503)

    return app
