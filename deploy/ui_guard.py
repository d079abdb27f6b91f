"""A guard in front of the Temporal Web UI (`python -m deploy.ui_guard PORT TARGET`), which itself checks nothing.

With --token-file it sends that token to Temporal, so that a browser needs none.

Without this guard any web page could act through its visitor's browser: with a cross-site POST, or with a host name
that resolves to this machine. And any account of this machine could use the UI: the first request brings the content of
--access-file in its address (`/?access=...`), and gets a cookie instead.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hmac import compare_digest
from pathlib import Path
from urllib.parse import urlsplit

import click
import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from deploy.state import is_loopback

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host"})
ACCESS, COOKIE = "access", "errand_temporal_ui"
COOKIE_SECONDS = 30 * 86_400
NO_ACCESS = "Open the link to the Temporal Web UI that `errand status` prints, or the one of compose.yaml in the docs."
# The UI shows Markdown in a frame of its own origin, so its own pages may frame it. Its own stricter headers stay.
FRAMES = {b"x-frame-options": b"SAMEORIGIN", b"content-security-policy": b"frame-ancestors 'self'"}


def refusal(host: str, origin: str | None) -> str | None:
    """Why a request is refused; None if it may pass."""
    name = urlsplit(f"//{host}").hostname or ""
    if not is_loopback(name):
        return "The Host must be a loopback address."
    if origin is not None and urlsplit(origin).netloc != host:
        return "Pages of other sites may not call the Temporal Web UI."
    return None


def create_app(target: str, access: str, token: str | None = None) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with httpx2.AsyncClient(base_url=f"http://{target}", timeout=60.0, trust_env=False) as client:
            app.state.client = client
            yield

    async def forward(request: Request) -> Response:
        if reason := refusal(request.headers.get("host", ""), request.headers.get("origin")):
            return PlainTextResponse(reason, 403)
        if _equal(request.query_params.get(ACCESS, ""), access):
            # on to the same address without the secret, which would stay in the address bar
            entry = RedirectResponse(request.url.remove_query_params(ACCESS), 303)
            entry.set_cookie(COOKIE, access, max_age=COOKIE_SECONDS, httponly=True, samesite="strict")
            return entry
        if not _equal(request.cookies.get(COOKIE, ""), access):
            return PlainTextResponse(NO_ACCESS, 403)
        client: httpx2.AsyncClient = request.app.state.client
        path = request.scope["raw_path"].decode("latin-1") + (f"?{request.url.query}" if request.url.query else "")
        # Without this the HTTP client would request a compression that the caller did not request.
        asked = {"accept-encoding": "identity"}
        asked |= {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        if token:
            asked["authorization"] = f"Bearer {token}"
        sent = client.build_request(request.method, path, headers=asked, content=await request.body())
        try:
            response = await client.send(sent, stream=True)
        except httpx2.TransportError:
            return PlainTextResponse("Temporal is starting or unavailable; see `errand status`.", 503)
        answer = StreamingResponse(_body(response), response.status_code)
        answer.raw_headers = _with_frame_rules(response.headers.raw)
        return answer

    return Starlette(routes=[Route("/{path:path}", forward, methods=METHODS)], lifespan=lifespan)


def _equal(given: str, access: str) -> bool:
    # in constant time, because other accounts of this machine can measure how long a comparison takes
    return compare_digest(given.encode(), access.encode())


async def _body(response: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.aiter_raw():
            yield chunk
    finally:
        await response.aclose()


def _with_frame_rules(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Pairs, since a response may set several cookies."""
    kept = [(name.lower(), value) for name, value in headers if name.lower().decode() not in HOP_BY_HOP]
    names = {name for name, _ in kept}
    return kept + [(name, value) for name, value in FRAMES.items() if name not in names]


@click.command(help=__doc__)
@click.argument("port", type=int)
@click.argument("target")
@click.option("--access-file", type=click.Path(path_type=Path, exists=True), required=True, help="Has the secret.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--token-file", type=click.Path(path_type=Path, exists=True), help="Has the token for Temporal.")
def main(port: int, target: str, access_file: Path, host: str, token_file: Path | None) -> None:
    token = token_file.read_text().strip() if token_file else None
    uvicorn.run(create_app(target, access_file.read_text().strip(), token), host=host, port=port, log_level="warning")


if __name__ == "__main__":
    main()
