"""Where the product opens a connection or takes one of the threads that all tenants share, found by a parser."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.layering import Module, modules

# programs that a person or an operator runs for themselves: no tenant chooses where they connect to
OF_THEIR_USER = ("bench", "cli", "client", "deploy", "offline")
LIBRARIES = (
    *("aiohttp", "aiosmtplib", "anthropic", "boto3", "dns", "ftplib", "grpc", "http.client", "httpcore2", "httpx"),
    *("httpx2", "imaplib", "mcp.client", "mcp.Client", "openai", "opentelemetry.exporter", "paramiko", "poplib"),
    *("redis", "requests", "slack_sdk", "smtplib", "socket", "socketserver", "telnetlib", "urllib.request", "urllib3"),
    *("websocket", "websockets", "xmlrpc.client"),
)
HARMLESS = ("httpx2.URL", "httpx2.InvalidURL")
OPENS = frozenset(
    {
        *("connect", "connect_ex", "connect_tcp", "connect_unix_socket", "create_connection", "create_pool"),
        *("create_datagram_endpoint", "create_unix_connection", "getaddrinfo", "getfqdn", "gethostbyaddr"),
        *("gethostbyname", "gethostbyname_ex", "getnameinfo", "open_connection", "open_unix_connection"),
        *("sock_connect", "urlopen"),
    }
)
THREADS = frozenset({"run_in_threadpool", "set_default_executor", "to_thread"})


def connections(root: Path) -> set[str]:
    """`path imports library` and `path::function name`, of everything that can open a connection or look up a name."""
    found = set()
    for module in _of_the_service(root):
        for where, node in _walk(module.tree, ""):
            for name in _imported(node):
                library = next((one for one in LIBRARIES if f"{name}.".startswith(f"{one}.")), None)
                if library and name not in HARMLESS:
                    found.add(f"{module.path} imports {library}")
            found |= {f"{module.path}::{where} {name}" for name in _names(node) if name in OPENS}
    return found


def shared_threads(root: Path) -> set[str]:
    """`path::function`, of everything that takes a thread of the default pool."""
    found = set()
    for module in _of_the_service(root):
        if not any(name in module.text for name in (*THREADS, "run_in_executor")):
            continue  # looking at every node takes a second
        for where, node in _walk(module.tree, ""):
            if any(name in THREADS for name in _names(node)) or _takes_default_executor(node):
                found.add(f"{module.path}::{where}")
    return found


def _of_the_service(root: Path) -> Iterator[Module]:
    return (module for module in modules(root) if module.name.split(".")[0] not in OF_THEIR_USER)


def _walk(node: ast.AST, where: str) -> Iterator[tuple[str, ast.AST]]:
    """Every node with the name of the function or class around it."""
    todo = [(where, node)]
    for place, parent in todo:
        for child in ast.iter_child_nodes(parent):
            yield place, child
            inside = place
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside = f"{place}.{child.name}".lstrip(".")
            todo.append((inside, child))


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
        return [one.value for one in node.args[:1] if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return [f"{node.module}.{alias.name}" for alias in node.names] if isinstance(node, ast.ImportFrom) else []


def _names(node: ast.AST) -> list[str]:
    """Names that are used, whether called or passed on; an import under another name is found by its own."""
    if isinstance(node, ast.Attribute):
        return [node.attr]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return [node.id]
    if isinstance(node, ast.ImportFrom):
        return [alias.name for alias in node.names if alias.asname]
    if isinstance(node, ast.Call) and _called(node) == "getattr" and len(node.args) > 1:
        return [str(node.args[1].value)] if isinstance(node.args[1], ast.Constant) else []
    return []


def _takes_default_executor(node: ast.AST) -> bool:
    if not (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "run_in_executor"
    ):
        return False
    given = node.args[0] if node.args else next((one.value for one in node.keywords if one.arg == "executor"), None)
    return given is None or (isinstance(given, ast.Constant) and given.value is None)
