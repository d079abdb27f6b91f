"""`errand mcp`: a bridge to the server at /mcp, for hosts that start a program and use its stdin and stdout."""

import json
import secrets
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator

import click

from cli.api import RESTART_PAUSE, RESTART_SECONDS, Api
from cli.errors import CliError, Refused, Unreachable
from cli.options import remote
from domain.json_object import JsonObject

END_PAUSE = 0.05
INTERNAL_ERROR, PARSE_ERROR = -32603, -32700
_VERSION = "io.modelcontextprotocol/protocolVersion"
_NAMES = {"tools/call": "name", "resources/read": "uri"} | dict.fromkeys(
    ("tasks/get", "tasks/update", "tasks/cancel"), "taskId"
)


def headers_of(message: JsonObject, negotiated: str | None) -> dict[str, str]:
    """The headers that HTTP requires for a message. Newer clients name the protocol version in every message, older
    ones agreed on it once."""
    headers = {"Accept": "application/json, text/event-stream"}
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    version = meta.get(_VERSION) if isinstance(meta, dict) else None
    if isinstance(version, str):
        headers |= {"MCP-Protocol-Version": version, "Mcp-Method": str(message.get("method"))}
        name = params.get(_NAMES.get(str(message.get("method")), ""))
        if isinstance(name, str):
            headers["Mcp-Name"] = _encode(name)
    elif negotiated is not None:
        headers["MCP-Protocol-Version"] = negotiated
    return headers


def _encode(value: str) -> str:
    """A value as a header; a value that a header cannot hold, or that looks encoded, is encoded."""
    if value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?base64?"):
        return value
    return f"=?base64?{b64encode(value.encode(errors='replace')).decode()}?="


class Bridge:
    """Forwards each line as a separate request, and writes the server's answers, one message per line."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._negotiated: str | None = None
        self._reached = False  # the server has answered before
        self._writing = threading.Lock()
        self._running: set[str] = set()  # ids of requests without an answer yet

    def run(self) -> None:
        for line in sys.stdin.buffer:  # bytes, so that invalid UTF-8 is a parse error and does not end the bridge
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                self._write(_error(None, PARSE_ERROR, "Parse error"))
                continue
            # the protocol no longer has batches, and there is no id to answer to
            if not isinstance(message, dict):
                continue
            if message.get("method") == "notifications/cancelled":
                params = message.get("params")
                self._running.discard(_key(params.get("requestId")) if isinstance(params, dict) else "")
                continue
            self._running.add(_key(message.get("id")))
            if message.get("method") == "initialize":
                self._forward(message)  # wait: later messages need the version that it agrees on
            else:
                # daemons, because the end does not wait for an answer that nobody wants any more
                threading.Thread(target=self._forward, args=(message,), daemon=True).start()
        while self._running:
            time.sleep(END_PAUSE)

    def _forward(self, message: JsonObject) -> None:
        request = _key(message.get("id"))
        try:
            for answer in self._answers(_repeatable(message)):
                if message.get("method") == "initialize":
                    self._negotiated = answer.get("result", {}).get("protocolVersion")
                if request in self._running:  # the answer to a request that was cancelled is of no use
                    self._write(answer)
        except Exception as error:  # every request must get an answer, whatever happens, unless it was cancelled
            if "id" in message and request in self._running:
                # only messages that were written for people: others may contain addresses or keys
                text = error.message if isinstance(error, CliError | click.ClickException) else type(error).__name__
                self._write(_error(message["id"], INTERNAL_ERROR, text))
        finally:
            self._running.discard(request)

    def _answers(self, message: JsonObject) -> Iterator[JsonObject]:
        """Send a message, again while the API restarts."""
        deadline: float | None = None
        while _key(message.get("id")) in self._running:
            try:
                for answer in self._api.messages("/mcp", message, headers_of(message, self._negotiated)):
                    self._reached = True
                    yield answer
                    # notifications about progress come before the answer and have no id
                    if "id" in answer:
                        return
                if "id" not in message:
                    return
                # a killed API process closes its connections like this, and the request is sent again with the same key
                raise Unreachable("the server ended the connection without an answer")
            except (Unreachable, Refused) as error:
                deadline = deadline or time.monotonic() + RESTART_SECONDS
                away = isinstance(error, Unreachable) or error.status == 503
                if not away or time.monotonic() > deadline or not (self._reached or self._api.own_stack_runs()):
                    raise
            time.sleep(RESTART_PAUSE)
            self._api.look_again()

    def _write(self, message: JsonObject) -> None:
        # a line must not be written inside another one: the host reads messages line by line
        with self._writing:
            click.echo(json.dumps(message))


def _key(request_id: object) -> str:
    """Ids 1 and "1" are two requests."""
    return json.dumps(request_id)


def _repeatable(message: JsonObject) -> JsonObject:
    """The message; a call with a key, by which the server acts on it once however often it is sent."""
    params = message.get("params")
    if message.get("method") != "tools/call" or not isinstance(params, dict):
        return message
    meta = params.get("_meta")
    # the host's own key wins, because it may repeat the call itself
    meta = {"errand/idempotencyKey": secrets.token_hex(16), **(meta if isinstance(meta, dict) else {})}
    return {**message, "params": {**params, "_meta": meta}}


def _error(request_id: object, code: int, text: str) -> JsonObject:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}


@click.command()
@remote
def mcp(api: Api, as_json: bool) -> None:
    """Serve the agents as MCP tools over stdin and stdout, with this program's own address and key.

    \b
    Examples:
      claude mcp add errand -- ./errand mcp
    """
    Bridge(api).run()
