"""The middleware of every request: it checks the head, identifies the caller, turns errors into problems, and logs."""

import base64
import hashlib
import logging
import re
import time
from collections import defaultdict

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.faces.responses.errors import PREFIX, error_response
from api.http import auth
from api.http.auth import FailedKeys
from api.http.problems import Unreadable, respond, type_name
from api.services import Services
from domain.ids import current_tenant, new_id

log = logging.getLogger("errand.access")
MAX_URL = 4_096
MAX_HEADERS = 16_384
OPEN_PATHS = frozenset({"/healthz", "/readyz"})  # probes send no key, and learn only what is running
SIGNED_PATHS = ("/hooks/",)  # services sign their requests with the secret of their connector
PAGES = frozenset({"/docs", "/redoc", "/docs/oauth2-redirect"})
PROTECTION = {  # for browsers: no scripts with our data
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
}
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_CREDENTIAL = re.compile(r"(?:^|&)(?:key|api_?key|token|access_token|authorization)=|ek_[0-9a-z]{12}_", re.IGNORECASE)
_INLINE = re.compile(rb"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL)
Headers = dict[str, list[str]]


class RequestMiddleware:
    """The only middleware: plain ASGI, so that streams pass through unbuffered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._failed_keys = FailedKeys()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await (self._socket if scope["type"] == "websocket" else self._app)(scope, receive, send)
            return
        headers = _headers(scope)
        visit = _Visit(scope, send, headers)
        try:
            check_head(scope, headers)
            await self._admit(scope, headers)
            await self._app(scope, receive, visit.send)
        except ClientDisconnect:
            # nobody reads a response any more; the log shows that it was the client and not a fault
            visit.status = 499
        except Exception as error:
            if visit.begun:  # too late for a problem: the connection is closed, and the reader resumes
                log.warning("%s: %s after the response began", visit.request_id, type_name(error))
                raise
            shaped = error_response if scope["path"].startswith(PREFIX) else respond
            await shaped(error, visit.request_id)(scope, receive, visit.send)
        finally:
            visit.record()

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a WebSocket like a request: a refusal before it opens is answered with a problem."""
        headers, opened = _headers(scope), False

        async def watched(message: Message) -> None:
            nonlocal opened
            opened = opened or message["type"] == "websocket.accept"
            await send(message)

        try:
            check_head(scope, headers)
            await self._admit(scope, headers)
            await self._app(scope, receive, watched)
        except Exception as error:
            if opened:
                raise
            await respond(error, new_id())(scope, receive, send)

    async def _admit(self, scope: Scope, headers: Headers) -> None:
        path: str = scope["path"]
        if path in OPEN_PATHS or path.startswith(SIGNED_PATHS) or _is_console_file(path):
            return
        if path.startswith("/triggers/") and path.count("/") == 2 and scope.get("method") == "POST":
            return  # an event, signed with the secret of its trigger
        if path.startswith("/codec/") and scope.get("method") == "OPTIONS":
            return  # a CORS preflight, which a browser sends without credentials
        services: Services = scope["app"].state.services
        caller = await auth.identify(scope, headers, services, self._failed_keys)
        # limits the rows that this request can see; every request has its own context
        current_tenant.set(caller.tenant)
        scope.setdefault("state", {})["caller"] = caller


def _is_console_file(path: str) -> bool:
    """Whether the path is the console's page or a module of it. They contain no data, and the console signs in
    later."""
    return path == "/" or (path.startswith("/console/") and path != "/console/session")


def check_head(scope: Scope, headers: Headers) -> None:
    """Refuse everything that can be refused without a lookup."""
    query: bytes = scope["query_string"]
    if len(scope.get("raw_path") or scope["path"].encode()) + len(query) > MAX_URL:
        raise Unreadable(414, "uri-too-long", f"A URL may have {MAX_URL} bytes.")
    if sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > MAX_HEADERS:
        raise Unreadable(431, "headers-too-large", f"All headers together may have {MAX_HEADERS} bytes.")
    hosts = headers.get("host", [])
    # Host decides whether a request is local, so that two of them could mean two things
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
        raise Unreadable(400, "bad-request", "One valid Host header is needed.")
    # request smuggling: a proxy in front might see another end of the body than we do
    if "transfer-encoding" in headers and "content-length" in headers:
        raise Unreadable(400, "bad-request", "Content-Length and Transfer-Encoding exclude each other.")
    if any("\x00" in value for values in headers.values() for value in values):
        raise Unreadable(400, "bad-request", "A header contains a NUL.")
    # URLs end up in logs and browser histories; the answer asks to revoke the key for that reason
    if _CREDENTIAL.search(query.decode("latin-1")):
        raise Unreadable(400, "credential-in-url", "Send a key in the Authorization header only; revoke this one.")


def _headers(scope: Scope) -> Headers:
    headers: Headers = defaultdict(list)
    for name, value in scope["headers"]:
        headers[name.decode("latin-1").lower()].append(value.decode("latin-1"))
    return headers


class _Visit:
    """One request for the log and the metrics, without its query, its body or a secret."""

    def __init__(self, scope: Scope, send: Send, headers: Headers) -> None:
        sent = "".join(headers.get("x-request-id", []))
        # the caller's id is logged, so that it must not contain line ends or terminal codes
        self.request_id = sent if _REQUEST_ID.fullmatch(sent) else new_id()
        self.status = 500
        self.begun = False
        self._scope = scope
        self._send = send
        self._started = time.perf_counter()
        self._seconds = 0.0
        self._page: Message | None = None  # the head of a page, held back until its content is known

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            self.status = message["status"]
            self._seconds = time.perf_counter() - self._started
            added = {b"x-request-id": self.request_id.encode(), b"x-content-type-options": b"nosniff"}
            given = {name for name, _ in message["headers"]}
            # states change, and belong to one tenant, so no cache may keep them
            defaults = {**PROTECTION, b"cache-control": b"no-store"}
            added |= {name: value for name, value in defaults.items() if name not in given}
            if self._scope["path"] in PAGES and self.status == 200:
                self._page = {**message, "headers": [*message["headers"], *added.items()]}
                return
            message["headers"] = [*message["headers"], *added.items()]
        elif self._page is not None:
            await self._send(with_page_policy(self._page, message["body"]))
            self._page = None
        await self._send(message)

    def record(self) -> None:
        # the route's pattern and not the path, which may contain anything
        route: str = getattr(self._scope.get("route"), "path", "(none)")
        method: str = self._scope["method"]
        # a caller may send any method, and each new one would become a new time series
        method = method if method in _METHODS else "OTHER"
        caller: auth.Caller | None = self._scope.get("state", {}).get("caller")
        services: Services = self._scope["app"].state.services
        services.metrics.count_answer(method, route, self.status, self._seconds)
        who = caller.created_by if caller else "-"
        log.info("%s %s %d %.0fms by %s %s", method, route, self.status, self._seconds * 1_000, who, self.request_id)


def with_page_policy(head: Message, body: bytes) -> Message:
    """The head of a page with its policy: only its own scripts, inline ones by their hash."""
    hashes = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in _INLINE.findall(body)]
    scripts = " ".join(["'self'", *(f"'sha256-{digest}'" for digest in hashes)])
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; worker-src blob:; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'none'"
    )
    # replaced and not added: of two policies a browser enforces both
    headers = [(name, value) for name, value in head["headers"] if name != b"content-security-policy"]
    return {**head, "headers": [*headers, (b"content-security-policy", policy.encode())]}
