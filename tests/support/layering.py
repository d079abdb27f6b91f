"""The rules that a parser can check: imports, readers of the environment, SQL outside the store, private names."""

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = (
    *("domain", "agents", "connectors", "store", "workflows", "activities", "api", "cli", "deploy", "offline"),
    *("client", "bench"),
)
SCRIPTS = ("settings", "worker")

# our packages that each package may import besides itself; the longest matching name decides
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "domain": ("errand.models",),  # a value that everybody may see is defined there, once
    "settings": ("domain.agents.models",),  # a provider is a value with one definition
    "offline": (),
    "agents": ("domain",),
    # one module per service does both: the API receives with it, an activity sends
    "connectors": ("domain",),
    "store": ("domain", "errand.models"),
    "store.migrate": ("domain", "settings"),  # runs as its own program
    "workflows": ("domain", "errand.models"),
    # schedules is the part of the client for Temporal's schedules
    "activities": ("domain", "connectors", "store", "errand.models", "workflows.client", "workflows.schedules"),
    "activities.notifications.dispatcher": ("domain", "store", "workflows.ui"),  # it starts workflows itself
    # a webhook in OpenAI's form needs the pure fold of that face
    "activities.notifications.deliver": ("domain", "connectors", "store", "api.faces.responses.project"),
    "api": (
        # the responses, which the client and the command line read with the same classes
        *("domain", "agents", "connectors", "store", "settings", "errand.models"),
        *("workflows.client", "workflows.codec", "workflows.schedules", "workflows.telemetry"),
    ),
    # `errand agents check` must know the tools and handlers that a worker would have
    "cli": (
        *("domain", "agents", "store", "workflows.client", "workflows.codec", "workflows.replay", "settings", "deploy"),
        "errand",  # the command line is a program on the client
        *("activities.tools.registry", "activities.handlers.registry", "activities.hooks.hook"),
    ),
    "deploy": ("settings", "domain.agents.models"),
    # a program that uses the client has no application code on its path; the command adds it
    "client": ("errand",),
    "client.errand.__main__": ("errand", "cli"),
    "worker": ("domain", "agents", "connectors", "store", "workflows", "activities", "settings"),
    "bench": (*PACKAGES, *SCRIPTS),
}

SHARED_MODELS = "client/errand/models.py"  # of the API's responses

SDKS = ("anthropic", "openai")
# the vendors' forms, the offline model server, the benchmark's loops, and the protocols of other vendors
MAY_IMPORT_SDKS = ("activities/model/anthropic.py", "activities/model/openai.py", "offline/", "bench/", "api/faces/")

# The SDK has no public name for the definitions of a workflow's handlers; see the module.
MAY_USE_PRIVATE = {"workflows/argument_guard.py": "_Definition _SignalDefinition _UpdateDefinition"}

# starting a process with an environment writes one and does not read ours
MAY_WRITE_ENVIRONMENT = {"deploy/child.py"}

_SQL = re.compile(
    r"\s*(select\b.+\bfrom\b|select\s+\w+\s*\(|insert\s+into\b|update\s+\w+\s+set\b|delete\s+from\b|with\s+\w+\s+as\s*\("
    r"|(create|alter|drop)\s+(table|index|function|role|database|schema)\b|notify\s+\w+\s*(,|$)|listen\s+\w+\s*$)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class Module:
    path: str
    name: str
    tree: ast.Module
    nodes: list[ast.AST]
    text: str


@functools.cache  # several rules read the same files
def _parsed(text: str) -> tuple[ast.Module, list[ast.AST]]:
    """The tree of a source and its nodes: `ast.walk` without operators and contexts, in half the time."""
    tree = ast.parse(text)
    found: list[ast.AST] = [tree]
    for node in found:
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                found += [one for one in value if isinstance(one, ast.AST)]
            elif isinstance(value, ast.AST) and value._fields:
                found.append(value)
    return tree, found


def parsed(root: Path, file: Path) -> Module:
    path, text = file.relative_to(root), file.read_text()
    return Module(str(path), ".".join(path.with_suffix("").parts).removesuffix(".__init__"), *_parsed(text), text)


def modules(root: Path) -> Iterator[Module]:
    files = [file for package in PACKAGES for file in sorted((root / package).rglob("*.py"))]
    for file in [*files, *(root / f"{script}.py" for script in SCRIPTS)]:
        if file.exists():
            yield parsed(root, file)


def _within(name: str, part: str) -> bool:
    return name == part or name.startswith(part + ".")


def imported(module: Module) -> Iterator[tuple[int, str]]:
    """Every imported name, also of imports inside functions; `from a import b` counts as a.b."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield node.lineno, "." * node.level + (node.module or "")
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def wrong_imports(root: Path) -> list[str]:
    wrong = []
    for module in modules(root):
        part = max((part for part in MAY_IMPORT if _within(module.name, part)), key=len)
        allowed = (part.split(".")[0], *MAY_IMPORT[part])
        for line, name in imported(module):
            ours = name.split(".")[0] in (*PACKAGES, *SCRIPTS, "errand")
            if name.startswith("."):
                wrong.append(f"{module.path}:{line}: imports are written in full, not {name}")
            elif ours and not any(_within(name, other) for other in allowed):
                wrong.append(f"{module.path}:{line}: {part} may not import {name}")
    return wrong


def sdk_imports(root: Path) -> list[str]:
    return [
        f"{module.path}:{line}: {name}"
        for module in modules(root)
        if not module.path.startswith(MAY_IMPORT_SDKS)
        for line, name in imported(module)
        if name.split(".")[0] in SDKS
    ]


def environment_readers(root: Path) -> list[str]:
    """Modules other than settings.py that touch the process's environment."""
    wrong = []
    for module in modules(root):
        if module.name == "settings" or _within(module.name, "client"):  # the client is a library for other programs
            continue
        touched = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
        if module.path in MAY_WRITE_ENVIRONMENT:
            touched.remove("putenv")
        for node in module.nodes:
            wrong += [f"{module.path}:{line}: os.{name}" for line, name in _of_os(node) if name in touched]
    return wrong


def _of_os(node: ast.AST) -> list[tuple[int, str]]:
    """Names of the os module that a node uses or imports."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
        return [(node.lineno, node.attr)]
    if isinstance(node, ast.ImportFrom) and node.module == "os":
        return [(node.lineno, alias.name) for alias in node.names]
    return []


def sql_outside_store(root: Path) -> list[str]:
    wrong = []
    for module in modules(root):
        if _within(module.name, "store") or module.name == "bench.scratch":  # fills and measures a scratch database
            continue
        for node in module.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _SQL.match(node.value):
                wrong.append(f"{module.path}:{node.lineno}: SQL: {node.value.strip().splitlines()[0][:60]}")
    return wrong


def second_models(root: Path) -> list[str]:
    """Models that the command line defines, and those of the API with the name of one in errand.models: a response has
    one definition, which the server, the client and the command line share."""
    shared = {node.name for node in parsed(root, root / SHARED_MODELS).nodes if isinstance(node, ast.ClassDef)}
    wrong = []
    for module in modules(root):
        if not (_within(module.name, "cli") or _within(module.name, "api")):
            continue
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).split(".")[-1] for base in node.bases}
                own = bases & {"BaseModel", "RootModel"} and _within(module.name, "cli")
                if own or node.name in shared:
                    wrong.append(f"{module.path}:{node.lineno}: {node.name} belongs into {SHARED_MODELS}")
    return wrong


def repeated_classes(root: Path) -> dict[str, list[str]]:
    """Class names that exist more than once in the product, with the files.

    The client is a separate package: its classes describe the same things from outside, and have the same names.
    """
    files: dict[str, list[str]] = {}
    for module in (module for module in modules(root) if not module.path.startswith("client/")):
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                files.setdefault(node.name, []).append(module.path)
    return {name: paths for name, paths in sorted(files.items()) if len(paths) > 1}


def private_names(root: Path) -> list[str]:
    """Private names of libraries that a module imports or uses, and names of libraries that it assigns."""
    wrong = []
    for module in modules(root):
        libraries = set(_libraries(module))
        for node in module.nodes:
            for line, name in _private(node, libraries):
                if name not in MAY_USE_PRIVATE.get(module.path, "").split():
                    wrong.append(f"{module.path}:{line}: {name} is private to a library")
            targets = node.targets if isinstance(node, ast.Assign) else []
            wrong += [
                f"{module.path}:{target.lineno}: assigns {ast.unparse(target)} of a library"
                for target in targets
                if isinstance(target, ast.Attribute) and _root_name(target) in libraries
            ]
    return wrong


def _libraries(module: Module) -> Iterator[str]:
    """The names under which a module has imported other people's modules."""
    for node in module.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            source = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                if (source or alias.name).split(".")[0] not in (*PACKAGES, *SCRIPTS, "__future__", "errand"):
                    yield (alias.asname or alias.name).split(".")[0]


def _private(node: ast.AST, libraries: set[str]) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] not in (
        *PACKAGES,
        *SCRIPTS,
        "__future__",
    ):
        names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        yield from ((node.lineno, name) for name in names if _is_private(name))
    elif isinstance(node, ast.Import):
        names = [part for alias in node.names for part in alias.name.split(".")]
        yield from ((node.lineno, name) for name in names if _is_private(name))
    elif isinstance(node, ast.Attribute) and _is_private(node.attr) and _root_name(node) in libraries:
        yield node.lineno, node.attr


def _is_private(name: str) -> bool:
    # os._exit is documented
    return (name.startswith("_") and not name.endswith("__") and name != "_exit") or name == "bridge"


def _root_name(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
