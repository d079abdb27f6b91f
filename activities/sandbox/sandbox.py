"""The protocol of a sandbox: it runs a command of the model with the workspace and nothing else of the host."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from activities.sandbox.network import NetworkPolicy


@dataclass(frozen=True)
class SandboxLimits:
    """Limits on one command, for all its processes together unless noted otherwise."""

    memory_bytes: int = 4 * 1024**3  # also the limit of each process's address space
    cpu_s: int = 600  # per process
    processes: int = 256  # and threads
    open_files: int = 1024  # per process
    file_bytes: int = 1024**3  # per file
    disk_bytes: int = 4 * 1024**3  # in the workspace
    files: int = 500_000  # in the workspace
    tmp_bytes: int = 256 * 1024**2
    output_bytes: int = 1_000_000  # kept: half from the start, half from the end
    flood_bytes: int = 64 * 1024**2  # a command that writes more than this is stopped
    readable: tuple[str, ...] = ()  # folders that it may read besides the system's own


@dataclass(frozen=True)
class Pipes:
    """Standard input and output of a command that talks with the worker: the command's ends, which the caller closes
    once the command has ended. Its output is then only what it writes to standard error."""

    stdin: int
    stdout: int


@dataclass(frozen=True)
class SandboxResult:
    """The end of a command. A `refusal` means that nothing was run."""

    exit_code: int | None  # None: it was stopped from outside
    output: str
    backend: str
    timed_out: bool = False
    truncated: bool = False
    stopped: str = ""  # the limit that stopped it
    refusal: str = ""


class Sandbox(Protocol):
    @property
    def name(self) -> str: ...

    async def run(
        self,
        command: str,
        *,
        workspace: Path,
        network: "NetworkPolicy | None",
        timeout_s: float,
        limits: SandboxLimits,
        pipes: Pipes | None = None,
    ) -> SandboxResult: ...


@dataclass(frozen=True)
class Refusing:
    """Used if no back end works. It never falls back to a bare subprocess, but returns the reason and the remedy."""

    reason: str
    remedy: str
    name: str = "none"

    async def run(
        self,
        command: str,
        *,
        workspace: Path,
        network: "NetworkPolicy | None",
        timeout_s: float,
        limits: SandboxLimits,
        pipes: Pipes | None = None,
    ) -> SandboxResult:
        return SandboxResult(None, "", self.name, refusal=f"Nothing was run: {self.reason}. {self.remedy}")
