"""What a sandbox is: a place where a command of the model runs with the workspace and nothing else of the host."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class SandboxLimits:
    """What one command may use. Memory and CPU hold for each process; times `processes` they hold for all of them."""

    memory_bytes: int = 4 * 1024**3
    cpu_s: int = 600
    processes: int = 256
    open_files: int = 1024
    file_bytes: int = 1024**3  # of one file; the workspace as a whole has no quota
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
    refusal: str = ""


class Sandbox(Protocol):
    @property
    def name(self) -> str: ...

    async def run(
        self, command: str, *, workspace: Path, network: bool, timeout_s: float, limits: SandboxLimits
    ) -> SandboxResult: ...


@dataclass(frozen=True)
class Refusing:
    """Stands where no back end works: never a bare subprocess, always the reason and the remedy."""

    reason: str
    remedy: str
    name: str = "none"

    async def run(
        self, command: str, *, workspace: Path, network: bool, timeout_s: float, limits: SandboxLimits
    ) -> SandboxResult:
        return SandboxResult(None, "", self.name, refusal=f"Nothing was run: {self.reason}. {self.remedy}")
