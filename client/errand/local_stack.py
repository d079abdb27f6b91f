"""The stack that `errand up` runs on this machine: its address, and the token that opens it."""

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from errand.errors import Unreachable

SYSTEM_STATE = Path("/var/lib/errand")  # for stacks that root runs and whose own folder cannot be reached


@dataclass(frozen=True)
class Server:
    url: str
    key: str | None = None


def find_server(url: str | None, key: str | None) -> Server:
    """The given address and key, else ERRAND_URL and ERRAND_API_KEY, else the stack of this account; never any
    other."""
    url = url or os.environ.get("ERRAND_URL") or None
    key = key or os.environ.get("ERRAND_API_KEY") or None
    if url and key:
        return Server(url, key)
    local = _running_stack()
    if url:  # the token is for its own stack, and no other server may see it
        return local if local and local.url.rstrip("/") == url.rstrip("/") else Server(url)
    if local is None:
        raise Unreachable("no stack is running here: `errand up` starts it; for an API elsewhere give its url")
    return Server(local.url, key or local.key)


def data_folders() -> list[Path]:
    """Possible folders of the stack's state, the likeliest first; deploy/data_dir.py chooses it in the same way."""
    if given := os.environ.get("ERRAND_DATA_DIR"):
        return [Path(given).expanduser().absolute()]
    package = Path(__file__).resolve().parent
    if (package / "app").is_dir():
        base = os.environ.get("XDG_DATA_HOME") or ""
        folder = (Path(base) if base.startswith("/") else Path("~/.local/share").expanduser()) / "errand"
        return [folder / "data", _of_root(folder)]
    root = package.parents[1]  # in the checkout
    return [root / ".errand" / "data", _of_root(root)]


def _of_root(folder: Path) -> Path:
    return SYSTEM_STATE / hashlib.sha256(str(folder).encode()).hexdigest()[:12]


def _running_stack() -> Server | None:
    for folder in data_folders():
        try:
            state = json.loads((folder / "stack.json").read_bytes())
            if _runs(int(state["pid"]), state["started"]):
                return Server(str(state["api_url"]), _token(folder))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def _runs(pid: int, started: str) -> bool:
    """Whether it is still the same process: after a crash another one may have its pid, and a stranger its port."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        return stat.exists() and stat.read_text().rpartition(")")[2].split()[19] == started
    with contextlib.suppress(PermissionError):  # the process belongs to another account
        os.kill(pid, 0)
    return True


def _token(folder: Path) -> str | None:
    try:
        return (folder / "token").read_text().strip() or None
    except OSError:
        return None
