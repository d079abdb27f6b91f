"""Only the listed modules may import an HTTP client: requests of any other module would be unguarded."""

import ast

from settings import ROOT
from tests.support.layering import modules

CLIENTS: tuple[str, ...] = (
    "httpx",
    "httpx2",
    "httpcore",
    "httpcore2",
    "requests",
    "urllib3",
    "aiohttp",
    "pycurl",
    "http.client",
)
CLIENTS += ("urllib.request", "anthropic", "websockets", "ftplib", "smtplib", "telnetlib", "xmlrpc.client")
ALLOWED = {
    "activities/egress.py": {"httpx2", "httpcore2"},
    "activities/model/": {"anthropic", "httpx2"},  # to the model endpoint that the operator set
    "activities/notifications/channels.py": {"smtplib"},  # to the mail server that the operator set
    "cli/": {"httpx2"},  # to our own API
    "client/errand/": {"httpx2"},  # to our own API, from programs of callers: no part of the stack imports it
    # only its URL class: an address is parsed, never requested
    "activities/tools/builtin/save_artifact.py": {"httpx2"},
    "domain/policy/subjects.py": {"httpx2"},  # only its URL class: rules must parse a host as the client does
    "deploy/ui_guard.py": {"httpx2"},  # to the Web UI that the supervisor itself started
    "deploy/": {"http.client"},  # health of the parts that the supervisor itself started
    "bench/": {"httpx2", "anthropic"},
}


def imported(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {client for client in CLIENTS for name in found if name == client or name.startswith(client + ".")}


def violations(files: dict[str, ast.Module]) -> list[str]:
    return [
        f"{path} imports {client}"
        for path, tree in files.items()
        for client in sorted(imported(tree))
        if not any(path.startswith(prefix) and client in clients for prefix, clients in ALLOWED.items())
    ]


def test_no_other_module_imports_an_http_client() -> None:
    files = {module.path: module.tree for module in modules(ROOT)}
    assert len(files) > 20
    assert violations(files) == []


def test_the_rule_sees_every_way_to_import() -> None:
    ways = ["import httpx2", "import urllib.request as u", "from urllib import request", "from http.client import *"]
    ways += ["def f():\n    import requests.sessions", "from anthropic._client import AsyncAnthropic"]
    for way in ways:
        assert len(violations({"activities/tools/other.py": ast.parse(way)})) == 1, way
