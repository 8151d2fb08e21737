"""Reading requests: small, JSON, and exactly of the form that was asked for."""

from __future__ import annotations

from typing import TypeVar

from fastapi import HTTPException, Request
from pydantic import BaseModel, ValidationError

Given = TypeVar("Given", bound=BaseModel)


async def read(request: Request, form: type[Given], longest: int) -> Given:
    """Return the body as the form says, or refuse it."""
    return parse(await body(request, longest), form)


async def body(request: Request, longest: int) -> bytes:
    """Read a body, and give up on one that is too long before it is all here."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise HTTPException(415, "send application/json")
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > longest:
            raise HTTPException(413, "too long")
    return content


def parse(content: bytes, form: type[Given]) -> Given:
    """Read JSON into a form, or say what is wrong with it."""
    try:
        return form.model_validate_json(content)
    except ValidationError as error:
        # What was wrong, and never what was given: the name of an unknown field is left out too.
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = [str(part) for part in first["loc"] if part in form.model_fields]
        raise HTTPException(422, ": ".join([*where, first["msg"]])) from error
