"""Chooses the back end once per worker: the first one that passes the probe, else one that refuses every command."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from activities.sandbox import bubblewrap, landlock, seatbelt
from activities.sandbox.probe import probe
from activities.sandbox.sandbox import Refusing, Sandbox

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
    if setting == "virtual":
        return Refusing("this build has no virtual shell (ERRAND_SANDBOX=virtual)", "Set ERRAND_SANDBOX=auto")
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
