"""Requests and responses of the pages: JSON of limited size, static files, threads of a kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from importlib.resources import files
from pathlib import PurePath
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import HTTPException, Request
from fastapi.responses import Response
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect

Form = TypeVar("Form", bound=BaseModel)


async def read(request: Request, form: type[Form], longest: int) -> Form:
    """Return the body as a form, or refuse it."""
    return parse(await body(request, longest), form)


async def body(request: Request, longest: int) -> bytes:
    """Read a body; refuse one that is too long before it has all arrived."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise HTTPException(415, "send application/json")
    if _from_another_page(request.headers):
        raise HTTPException(403, "sent by another page")
    content = b""
    try:
        async for chunk in request.stream():
            content += chunk
            if len(content) > longest:
                raise HTTPException(413, "too long")
    except ClientDisconnect as error:
        # Nobody reads this answer, but an unhandled error would be logged with its traceback.
        raise HTTPException(400, "the request was cut short") from error
    return content


def _from_another_page(headers: Headers) -> bool:
    """Whether a browser says that a page of another origin sent this; other clients say nothing."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        # Compared by the browser, so that it is right behind a proxy, which may change the host.
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and origin != f"http://{headers.get('host')}"


def parse(content: bytes, form: type[Form]) -> Form:
    """Read JSON into a form, or refuse it with the reason."""
    try:
        return form.model_validate_json(content)
    except ValidationError as error:
        # The reason must not echo the input, not even the name of an unknown field.
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = [str(part) for part in first["loc"] if part in form.model_fields]
        raise HTTPException(422, ": ".join([*where, first["msg"]])) from error


def json_response(value: Any) -> Response:
    """Return plain data as JSON; lone surrogates, which UTF-8 lacks, are written as escapes."""
    try:
        content = _dump(value, ascii_only=False).encode()
    except UnicodeEncodeError:
        content = _dump(value, ascii_only=True).encode()
    return Response(content, media_type="application/json")


def _dump(value: Any, ascii_only: bool) -> str:
    return json.dumps(value, ensure_ascii=ascii_only, allow_nan=False, separators=(",", ":"))


_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class StaticFiles:
    """Some files of a package's `static` folder, by name."""

    def __init__(self, package: str, names: Iterable[str]) -> None:
        static = files(package) / "static"
        self._contents = {name: (static / name).read_bytes() for name in names}

    def names(self) -> list[str]:
        """Return the names of all files."""
        return list(self._contents)

    def response(self, name: str) -> Response:
        """Return a file as a response."""
        return Response(self._contents[name], media_type=_TYPES[PurePath(name).suffix])


Result = TypeVar("Result")


class RequestThreads:
    """Runs functions in at most `most` threads at once; the others wait without a thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._limiter: CapacityLimiter | None = None

    async def run(self, function: Callable[[], Result]) -> Result:
        """Return what a function returns."""
        if self._limiter is None:  # it belongs to the event loop that is running now
            self._limiter = CapacityLimiter(self._most)
        return await to_thread.run_sync(function, limiter=self._limiter)
