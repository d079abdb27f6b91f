"""What a sandbox is: a place where a command of the model runs with the workspace and nothing else of the host."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from activities.sandbox.network import NetworkPolicy


@dataclass(frozen=True)
class SandboxLimits:
    """What one command may use, with all its processes together unless said otherwise."""

    memory_bytes: int = 4 * 1024**3  # also the address space of each process
    cpu_s: int = 600  # of each process
    processes: int = 256  # and threads
    open_files: int = 1024  # of each process
    file_bytes: int = 1024**3  # of one file
    disk_bytes: int = 4 * 1024**3  # of the workspace
    files: int = 500_000  # in the workspace
    tmp_bytes: int = 256 * 1024**2
    output_bytes: int = 1_000_000  # kept: half from the start, half from the end
    flood_bytes: int = 64 * 1024**2  # a command that writes more than this is stopped


@dataclass(frozen=True)
class SandboxResult:
    """How the command ended; a `refusal` means that nothing was run."""

    exit_code: int | None  # None: it was stopped from outside
    output: str
    backend: str
    timed_out: bool = False
    truncated: bool = False
    stopped: str = ""  # the ceiling because of which it was stopped
    refusal: str = ""


class Sandbox(Protocol):
    @property
    def name(self) -> str: ...

    async def run(
        self, command: str, *, workspace: Path, network: "NetworkPolicy | None", timeout_s: float, limits: SandboxLimits
    ) -> SandboxResult: ...


@dataclass(frozen=True)
class Refusing:
    """Used where no back end works: never a bare subprocess, always the reason and the remedy."""

    reason: str
    remedy: str
    name: str = "none"

    async def run(
        self, command: str, *, workspace: Path, network: "NetworkPolicy | None", timeout_s: float, limits: SandboxLimits
    ) -> SandboxResult:
        return SandboxResult(None, "", self.name, refusal=f"Nothing was run: {self.reason}. {self.remedy}")
