"""The state of a running stack: its addresses and processes, in one file that any command can read."""

import contextlib
import errno
import fcntl
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

from pydantic import BaseModel, ValidationError

_SHOWN = 80  # characters of a command
_LISTENS = "0A"  # a state in /proc/net/tcp
LOW_DISK = 64_000_000  # PostgreSQL writes its log in files of 16 MB


class StackError(Exception):
    """The embedded stack cannot do something; the message says why, and how to fix it."""


def is_loopback(host: str) -> bool:
    """Whether a host name or address, with or without brackets, is this machine itself."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def describe(error: OSError | StackError) -> str:
    """An error text for people; a full disk is named, with a remedy."""
    if isinstance(error, StackError):
        return str(error)
    text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full ({text}); free some space there, or set ERRAND_DATA_DIR to another disk"
    return text


class PartInfo(BaseModel):
    name: str
    address: str
    pid: int | None
    healthy: bool
    restarts: int
    log: Path
    started: str | None = None  # with the pid, identifies the process: a later one may get the same pid
    problem: str | None = None  # why it is not healthy, as far as known
    check: str = ""  # the address that answers while the part is healthy; empty: it only has to be alive


class StackInfo(BaseModel):
    pid: int
    started: str | None
    ready: bool = False
    api_url: str
    docs_url: str
    temporal_address: str
    temporal_ui_url: str | None  # None: Temporal is not ours
    database_url: str  # without its password, since people see it
    data_dir: Path
    offline_model: bool
    model: str = ""  # the default model of agents
    model_endpoint: str = ""
    search: str | None = None  # the service that web_search asks; None: there is none
    cost_limit: float = 0.0  # dollars per task, unless it or its agent has a limit; 0: none
    started_with: dict[str, str] = {}  # its settings, without secrets
    moved: list[str] = []  # why ports are others than before
    parts: list[PartInfo] = []
    problems: list[str] = []  # with the model, agent files and own tools, as of the last `status`
    disk_free: int | None = None  # bytes, as of the last `status`

    @property
    def disk_full(self) -> bool:
        return self.disk_free is not None and self.disk_free < LOW_DISK


MASK = "***"


def without_passwords(text: str) -> str:
    """An address with its passwords masked, wherever drivers accept one: before @, as a parameter, or as a keyword."""
    # up to the last @: a password may have characters of a URL
    text = re.sub(r"(://[^:/@]*):.*@", rf"\1:{MASK}@", text)
    return re.sub(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^&\s]+)", rf"\1{MASK}", text, flags=re.IGNORECASE)


def find_start(pid: int) -> str | None:
    """The start time of a process, as the system writes it; None if there is no such process or it is a zombie."""
    if Path("/proc/self/stat").exists():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else fields[19]
    ps = subprocess.run(["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True)
    state, _, start = ps.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else start.strip()


def command_of(pid: int) -> str:
    if Path("/proc/self/cmdline").exists():
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return ""
    return subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True).stdout


def end_process(pid: int, *, started: str, first: signal.Signals, patience: float) -> None:
    """Send the signal `first`, then kill, and wait for the end. A later process with the same pid is never touched."""
    for number, wait in ((first, patience), (signal.SIGKILL, 5.0)):
        if find_start(pid) != started:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + wait
        while find_start(pid) == started and time.monotonic() < deadline:
            time.sleep(0.02)


def end_leftovers(info: StackInfo) -> None:
    """End parts that outlived their supervisor, which can happen on systems without a parent-death signal."""
    for part in reversed(info.parts):
        if part.pid and part.started:
            end_process(part.pid, started=part.started, first=signal.SIGINT, patience=5.0)


def read(data_dir: Path) -> StackInfo | None:
    """The last state written here, whether or not that stack is still running."""
    try:
        return StackInfo.model_validate_json((data_dir / "stack.json").read_bytes())
    except (OSError, ValidationError):  # no file, or one of another version
        return None


def write(info: StackInfo) -> None:
    target = info.data_dir / "stack.json"
    draft = target.with_suffix(".new")
    draft.unlink(missing_ok=True)
    # only for its owner: it has the addresses of the parts, some of which answer anybody
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(info.model_dump_json(indent=2))
    draft.replace(target)  # a reader never sees half a file


def remove(data_dir: Path) -> None:
    (data_dir / "stack.json").unlink(missing_ok=True)


def running(data_dir: Path) -> StackInfo | None:
    info = read(data_dir)
    return info if info and info.started and find_start(info.pid) == info.started else None


@contextlib.contextmanager
def lock(data_dir: Path) -> Iterator[None]:
    """Lock the data directory: two Temporal servers on one file would corrupt each other's data unnoticed."""
    try:
        file = (data_dir / "lock").open("a+")
    except PermissionError as error:
        raise StackError(
            f"{error.filename} belongs to another account; set ERRAND_DATA_DIR to a folder of your own"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise already_running(data_dir) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def already_running(data_dir: Path) -> StackError:
    info = running(data_dir)
    if info:
        where = f"pid {info.pid}; API {info.api_url}, Temporal {info.temporal_ui_url or info.temporal_address}"
    else:
        where = f"pid {(data_dir / 'lock').read_text() or 'unknown'}; still starting or stopping"
    return StackError(f"already running on {data_dir} ({where}). `errand down` stops it")


# who has a port of this machine, as far as Linux shows it


def claim_of(port: int) -> str:
    """The abstract socket with which a stack claims a port for as long as it runs."""
    return f"errand-port-{port}"


def holder_of(port: int) -> str:
    claims = [row[6] for row in _rows("unix") if row[-1] == f"@{claim_of(port)}"]
    for pid in _pids_of(claims):
        return f"another Errand stack, whose data is in {_data_of(pid)} (pid {pid})"
    listeners = [row for row in _rows("tcp") + _rows("tcp6") if row[3] == _LISTENS and row[1].endswith(f":{port:04X}")]
    for pid in _pids_of([row[9] for row in listeners]):
        return f"pid {pid} ({' '.join(command_of(pid).split())[:_SHOWN]})"
    return "a program of another account"


def _rows(table: str) -> list[list[str]]:
    with contextlib.suppress(OSError):
        return [line.split() for line in Path("/proc/net", table).read_text().splitlines()[1:]]
    return []


def _pids_of(inodes: list[str]) -> list[int]:
    """The processes that hold one of these sockets, of those that this account may look into."""
    sockets = {f"socket:[{inode}]" for inode in inodes}
    if not sockets:
        return []
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return [pid for pid in pids if not sockets.isdisjoint(_open_files(pid))]


def _data_of(supervisor: int) -> str:
    """The data folder of a stack, whose lock its supervisor holds."""
    return next(
        (str(Path(one).parent) for one in _open_files(supervisor) if one.endswith("/lock")), "an unknown folder"
    )


def _open_files(pid: int) -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.append(os.readlink(entry.path))
    return found
