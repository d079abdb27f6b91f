"""`errand mcp`: a bridge to the server at /mcp, for hosts that start a program and use its stdin and stdout."""

import json
import sys
import threading
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor

import click

from cli.client.api import Api
from cli.errors import CliError
from cli.options import remote
from domain.json_object import JsonObject

AT_ONCE = 16  # concurrent requests; task_wait holds one for up to a minute
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
            headers["Mcp-Name"] = _encoded(name)
    elif negotiated is not None:
        headers["MCP-Protocol-Version"] = negotiated
    return headers


def _encoded(value: str) -> str:
    """A value as a header; a value that a header cannot hold, or that looks encoded, is encoded."""
    if value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?base64?"):
        return value
    return f"=?base64?{b64encode(value.encode(errors='replace')).decode()}?="


class Bridge:
    """Forwards each line as a request of its own, and writes the server's answers, one message per line."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._negotiated: str | None = None
        self._writing = threading.Lock()

    def run(self) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for line in sys.stdin.buffer:  # bytes, so that invalid UTF-8 is a parse error and does not end the bridge
                try:
                    message = json.loads(line)
                except (ValueError, RecursionError):
                    self._write(_error(None, PARSE_ERROR, "Parse error"))
                    continue
                # a cancelled request ends without effect, at the latest when its wait is over
                if isinstance(message, dict) and message.get("method") != "notifications/cancelled":
                    if message.get("method") == "initialize":
                        self._forward(message)  # wait for it, because later messages need the version that it agrees on
                    else:
                        pool.submit(self._forward, message)

    def _forward(self, message: JsonObject) -> None:
        try:
            with Api.like(self._api) as api:
                for answer in api.messages("/mcp", message, headers_of(message, self._negotiated)):
                    if message.get("method") == "initialize":
                        self._negotiated = answer.get("result", {}).get("protocolVersion")
                    self._write(answer)
        except Exception as error:  # every request must get an answer, whatever happens
            if "id" in message:
                text = error.message if isinstance(error, CliError | click.ClickException) else type(error).__name__
                self._write(_error(message["id"], INTERNAL_ERROR, text))

    def _write(self, message: JsonObject) -> None:
        with self._writing:
            click.echo(json.dumps(message))


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
