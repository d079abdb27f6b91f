"""The protocol of a sandbox: it runs a command of the model with the workspace and nothing else of the host. Then how
this worker runs commands: which sandbox, with which limits, and which sessions have a network."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import NotRequired, Protocol, TypedDict, Unpack

from activities.egress import Guard
from activities.sandbox.network import NetworkPolicy
from domain.policy.rules import ToolTraits

log = logging.getLogger(__name__)
NONE: Mapping[str, str] = MappingProxyType({})


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


class CommandOptions(TypedDict):
    """What a command is run with."""

    workspace: Path
    network: NetworkPolicy | None
    timeout_s: float
    limits: SandboxLimits
    pipes: NotRequired[Pipes | None]
    variables: NotRequired[Mapping[str, str]]


class Sandbox(Protocol):
    @property
    def name(self) -> str: ...

    async def run(self, command: str, **options: Unpack[CommandOptions]) -> SandboxResult: ...


@dataclass(frozen=True)
class Refusing:
    """Used if no back end works. It never falls back to a bare subprocess, but returns the reason and the remedy."""

    reason: str
    remedy: str
    name: str = "none"

    async def run(self, command: str, **options: Unpack[CommandOptions]) -> SandboxResult:
        return SandboxResult(None, "", self.name, refusal=f"Nothing was run: {self.reason}. {self.remedy}")


@dataclass(frozen=True)
class Commands:
    """`guard` is None if the operator gives no command a network, whatever agents and tasks say."""

    sandbox: Sandbox
    limits: SandboxLimits = SandboxLimits()
    guard: Guard | None = None
    # rules about tools that reach hosts bind commands too
    tools: Mapping[str, ToolTraits] = field(default_factory=dict)

    async def run(
        self,
        script: str,
        folder: Path,
        seconds: float,
        network: NetworkPolicy | None = None,
        readable: Path | None = None,
        variables: Mapping[str, str] = NONE,
    ) -> SandboxResult:
        """Run a command of the platform or of an owner in a folder; it may read one more."""
        limits = self.limits
        if readable is not None:
            limits = replace(limits, readable=(*limits.readable, str(readable)))
        return await self.sandbox.run(
            script, workspace=folder, network=network, timeout_s=seconds, limits=limits, variables=variables
        )


def existing_folders(folders: tuple[str, ...]) -> tuple[str, ...]:
    """The folders that commands may read, without those that do not exist: a sandbox could not start with them."""
    missing = [folder for folder in folders if not (Path(folder).is_absolute() and Path(folder).is_dir())]
    if missing:
        log.error("ERRAND_SANDBOX_FOLDERS: left out, because they are no folders with an absolute path: %s", missing)
    return tuple(folder for folder in folders if folder not in missing)
