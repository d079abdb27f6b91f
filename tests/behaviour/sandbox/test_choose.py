"""The choice of a back end: each is tried, and commands are refused rather than run with less protection."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import pytest

from activities.sandbox import CommandOptions, Refusing, Sandbox, SandboxLimits, SandboxResult, choose
from activities.sandbox.choose import probe
from activities.sandbox.supervise import supervise


@dataclass(frozen=True)
class Bare:
    """No sandbox, but with some of its protections: the probe must notice what is missing."""

    prefix: str = ""
    name: str = "bare"

    async def run(self, command: str, **options: Unpack[CommandOptions]) -> SandboxResult:
        inside = f"cd {options['workspace']}; {self.prefix}\n{command}"
        return await supervise(["/bin/bash", "-c", inside], options, self.name)


async def test_every_back_end_of_this_host_passes_its_probe(sandbox: Sandbox, workspace: Path) -> None:
    assert await probe(sandbox, workspace) is None
    assert os.listdir(workspace) == []


@pytest.mark.parametrize(
    ("prefix", "reason"),
    [
        ("", "reads a file outside the workspace"),
        ("", "writes outside the workspace"),
        ("", "reaches a port of the host"),
        ("", "sees a process of the host"),
        ("export SECRET=1; unset HOME;", "sees an environment that is not its own"),
        ("exit 3;", "it does not run: no output"),
        ("echo broken; exit 1;", "it does not run: broken"),
        ("cd /nowhere 2>/dev/null; written() { :; }; exec 2>/dev/null; readonly PATH; cd /;", "the workspace"),
    ],
)
async def test_probe_reports_what_the_sandbox_does_not_stop(prefix: str, reason: str, workspace: Path) -> None:
    reported = await probe(Bare(prefix), workspace)
    assert reported is not None and reason in reported


@pytest.mark.parametrize("setting", ["none", "seatbelt"])
async def test_host_without_a_sandbox_runs_nothing(setting: str, workspace: Path) -> None:
    if setting == "seatbelt" and sys.platform == "darwin":
        pytest.skip("it works there")
    chosen = await choose(setting, workspace)
    assert isinstance(chosen, Refusing)
    result = await chosen.run("touch ran", workspace=workspace, network=None, timeout_s=1, limits=SandboxLimits())
    assert result.refusal.startswith("Nothing was run: ") and result.exit_code is None
    assert os.listdir(workspace) == []
