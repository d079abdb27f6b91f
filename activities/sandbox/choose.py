"""Chooses the back end once per worker: the first one that passes the probe, else one that refuses every command."""

import asyncio
import contextlib
import logging
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path

from activities.sandbox import bubblewrap, landlock, seatbelt
from activities.sandbox.sandbox import Refusing, Sandbox, SandboxLimits, SandboxResult

log = logging.getLogger(__name__)
_BACK_ENDS: Mapping[str, Callable[[], Sequence[Sandbox]]] = {
    "bwrap": bubblewrap.candidates,
    "sandlock": landlock.candidates,
    "seatbelt": seatbelt.candidates,
}
_REMEDY = (
    "On Linux allow unprivileged user namespaces (in a container: --security-opt seccomp=unconfined, "
    "on Ubuntu an AppArmor profile for bwrap) or use a kernel from 6.12 on with Landlock, then restart the worker"
)
_chosen: dict[tuple[str, Path | None], Sandbox] = {}
_TIMEOUT_S = 10.0
_OUR_VARIABLES = (
    "PATH|HOME|TMPDIR|LANG|TERM|PWD|OLDPWD|SHLVL|SHELL|_|PYTHONDONTWRITEBYTECODE|GIT_CONFIG_NOSYSTEM|LC_CTYPE|"
    "__CF_USER_TEXT_ENCODING"
)
# This runs inside. The marker is never written in full, or the script would find itself among the processes.
_SCRIPT = """
cat {canary_file} >/dev/null 2>&1 && echo LEAK reads a file outside the workspace
(echo x > {canary_dir}/written) 2>/dev/null && echo LEAK writes outside the workspace
(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo LEAK reaches a port of the host
kill -0 {pid} 2>/dev/null && tr '\\0' ' ' </proc/{pid}/cmdline 2>/dev/null | grep -q '{pattern}' \\
  && echo LEAK sees a process of the host
cat /proc/[0-9]*/cmdline 2>/dev/null | grep -aq '{pattern}' && echo LEAK sees a process of the host
(env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n') | grep -a = | grep -aEvq '^({variables})=' \\
  && echo LEAK sees an environment that is not its own
echo {half1}''{half2} > written || echo LEAK cannot write the workspace
echo PROBED
"""


async def choose(setting: str, workspaces: Path | None = None) -> Sandbox:
    """`setting` is auto, none, or the name of one back end; the probe makes its workspace in `workspaces`."""
    key = (setting, workspaces)
    if key not in _chosen:
        _chosen[key] = await _choose(setting, workspaces)
        log.info("sandbox for bash: %s", _chosen[key].name)
    return _chosen[key]


async def _choose(setting: str, workspaces: Path | None) -> Sandbox:
    if setting == "none":
        return Refusing("commands are switched off (ERRAND_SANDBOX=none)", "Use the file tools instead")
    names = list(_BACK_ENDS) if setting == "auto" else [setting]
    reasons: list[str] = []
    for name in names:
        found = _BACK_ENDS[name]()
        if not found:
            reasons.append(f"{name}: not available on this host")
        for sandbox in found:
            reason = await probe(sandbox, workspaces)
            if reason is None:
                return sandbox
            reasons.append(f"{sandbox.name}: {reason}")
    return Refusing(f"no sandbox works on this host ({'; '.join(reasons)})", _REMEDY)


# The probe: harmless stand-ins for what a sandbox must protect, and what got through.


async def probe(sandbox: Sandbox, workspaces: Path | None = None) -> str | None:
    """None if the sandbox held and works for directories in `workspaces`, else the reason why it must not be used."""
    with tempfile.TemporaryDirectory() as other, _workspace(workspaces) as workspace:
        canary = _canary(Path(other))
        marker = secrets.token_hex(8)
        async with _host(marker) as (port, pid):
            script = _SCRIPT.format(
                canary_file=canary,
                canary_dir=other,
                port=port,
                pid=pid,
                pattern=f"[{marker[0]}]{marker[1:]}",
                half1=marker[:8],
                half2=marker[8:],
                variables=_OUR_VARIABLES,
            )
            try:
                result = await sandbox.run(
                    script, workspace=workspace, network=None, timeout_s=_TIMEOUT_S, limits=SandboxLimits()
                )
            except OSError as error:
                return f"it cannot be started: {error.strerror}"
        return _verdict(result, canary, workspace / "written", marker)


def _verdict(result: SandboxResult, canary: Path, written: Path, marker: str) -> str | None:
    leaks = [line.removeprefix("LEAK ") for line in result.output.splitlines() if line.startswith("LEAK ")]
    if leaks:
        return "; ".join(leaks)
    if canary.with_name("written").exists():
        return "writes outside the workspace"
    if "PROBED" not in result.output or not written.exists() or written.read_text().strip() != marker:
        return f"it does not run: {' '.join(result.output.split())[-200:] or 'no output'}"
    return None


@contextlib.contextmanager
def _workspace(workspaces: Path | None) -> Iterator[Path]:
    if workspaces is not None:
        workspaces.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=workspaces, prefix=".probe-") as place:
        Path(place).chmod(0o755)
        yield Path(place)


def _canary(outside: Path) -> Path:
    """Make it readable for everyone, so that only the sandbox itself can keep the command from it."""
    outside.chmod(0o777)
    canary = outside / "canary"
    canary.write_text("canary")
    canary.chmod(0o666)
    return canary


@contextlib.asynccontextmanager
async def _host(marker: str) -> AsyncIterator[tuple[int, int]]:
    """A listener and a process of the host that the sandbox must hide: a port, and a pid with the marker in its
    command."""
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", "read line", marker, stdin=asyncio.subprocess.PIPE, env={}
    )
    try:
        yield server.sockets[0].getsockname()[1], process.pid
    finally:
        process.kill()
        await process.wait()
        server.close()
        await server.wait_closed()
