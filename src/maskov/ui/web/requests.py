"""Read JSON requests of limited size into forms."""

from __future__ import annotations

from typing import TypeVar

from fastapi import HTTPException, Request
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
