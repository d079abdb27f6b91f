"""The console: its page and modules, the texts that it shows, and the cookie by which a browser refers to a key."""

import hashlib
from datetime import UTC, datetime
from functools import cache, partial
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request, Response
from pydantic import BaseModel, Field, StringConstraints

from api.http import auth
from api.http.auth import Anyone
from api.http.body import json_body
from api.http.lookup import require_found
from api.http.transfers import take_turn
from api.openapi import problems
from api.views.texts import compute, render_markdown
from domain.differences import MOST_CHARACTERS, DiffRow, compare, read_diff
from domain.errors import Invalid
from domain.task import Strict
from store import keys
from store.keys import Right

router = APIRouter(tags=["console"])

POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "img-src 'self' data:"
)
_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class ConsoleSession(BaseModel):
    name: str = Field(description="of the key")
    tenant: str
    rights: list[Right]
    key_id: str | None = Field(description="null: the account that runs the server")
    temporal_ui: str | None = Field(description="where the Temporal Web UI shows workflows; null: it is not known")


@cache
def _asset(name: str) -> tuple[bytes, str, str] | None:
    """Content, media type and ETag of a file of the console."""
    suffix = name[name.rfind(".") :]
    folder = files("api").joinpath("console")
    # compared with the list of files and never joined to a path, so that `..` finds nothing
    if suffix not in _KINDS or name not in {file.name for file in folder.iterdir()}:
        return None
    content = folder.joinpath(name).read_bytes()
    return content, f"{_KINDS[suffix]}; charset=utf-8", f'"{hashlib.sha256(content).hexdigest()[:32]}"'


@router.get("/", include_in_schema=False)
async def page(request: Request) -> Response:
    return _respond(request, "index.html")


def _respond(request: Request, name: str) -> Response:
    content, kind, etag = require_found(_asset(name))
    # Revalidated each time, which costs a 304: a new server version must not run with old modules.
    headers = {"Content-Security-Policy": POLICY, "ETag": etag, "Cache-Control": "no-cache"}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)


@router.get("/console/session", summary="Show who is signed in")
async def show_console_session(call: Anyone) -> ConsoleSession:
    caller, ui = call.caller, call.settings.temporal_ui_url
    return ConsoleSession(
        name=caller.name,
        tenant=caller.tenant,
        rights=sorted(caller.rights),
        key_id=caller.key_id,
        temporal_ui=f"{ui}/namespaces/{call.services.workflows.namespace}/workflows" if ui else None,
    )


@router.post("/console/session", responses=problems(409, 422), summary="Swap a key for a cookie")
async def sign_in(
    call: Anyone, response: Response, request: Request, authorization: Annotated[str | None, Header()] = None
) -> ConsoleSession:
    """Send the key in the Authorization header. The cookie has the rights of the key, expires after 12 hours, cannot be
    read by scripts, and is not sent with requests of other sites."""
    # a cookie must not renew itself, or it would never expire
    if authorization is None:
        raise Invalid("Send the key in the Authorization header.")
    presented = authorization.partition(" ")[2].strip()
    value = auth.issue_cookie(call.services.keys, call.caller.key_id or auth.LOCAL_KEY, keys.digest_of(presented))
    response.set_cookie(
        auth.COOKIE_NAME,
        value,
        max_age=auth.COOKIE_SECONDS,
        httponly=True,
        samesite="strict",
        # on loopback there is no HTTPS, and a browser would drop a secure cookie there
        secure=request.url.scheme == "https",
    )
    return await show_console_session(call)


@router.delete("/console/session", status_code=204, summary="Sign out")
async def sign_out(call: Anyone, request: Request) -> Response:
    """The cookie ends at once, also where somebody has copied it."""
    cookie = auth.read_cookie(call.services.keys, {"cookie": request.headers.getlist("cookie")})
    if cookie is not None:
        await keys.sign_out(call.pool, cookie.id, datetime.fromtimestamp(cookie.expires, UTC))
    response = Response(status_code=204)
    response.delete_cookie(auth.COOKIE_NAME, httponly=True, samesite="strict")
    return response


Text = Annotated[str, StringConstraints(max_length=100_000)]
MOST_TEXTS = 50  # of one request


class MarkdownBody(Strict):
    texts: list[Text] = Field(max_length=MOST_TEXTS)


class Rendered(BaseModel):
    html: list[str] = Field(description="of each text, in order; a long one is cut")


@router.post(
    "/texts/markdown", dependencies=[Depends(take_turn)], summary="Render Markdown as HTML that is safe in a page"
)
async def render_texts(
    _: Anyone, body: Annotated[MarkdownBody, json_body(MarkdownBody, example={"texts": ["**bold**"]})]
) -> Rendered:
    # one by one, so that other requests get their turn
    return Rendered(html=[await compute(partial(render_markdown, text)) for text in body.texts])


class DifferencesBody(Strict):
    pairs: list[tuple[Text, Text]] = Field(default=[], max_length=MOST_TEXTS, description="each: before, after")
    diffs: list[Text] = Field(default=[], max_length=MOST_TEXTS, description="unified diffs, to be split into rows")


class Differences(BaseModel):
    pairs: list[list[DiffRow]]
    diffs: list[list[DiffRow]]


@router.post(
    "/texts/differences", dependencies=[Depends(take_turn)], summary="Compare texts line by line and word by word"
)
async def compare_texts(
    _: Anyone, body: Annotated[DifferencesBody, json_body(DifferencesBody, example={"pairs": [["one", "two"]]})]
) -> Differences:
    return Differences(
        pairs=[await compute(partial(compare, *pair)) for pair in body.pairs],
        diffs=[await compute(partial(read_diff, text[:MOST_CHARACTERS])) for text in body.diffs],
    )


@router.get("/console/{name}", include_in_schema=False)
async def asset(request: Request, name: str) -> Response:
    return _respond(request, name)
