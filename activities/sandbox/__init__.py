"""The sandbox that runs the model's commands: one protocol and several back ends. A probe chooses the back end.

Read sandbox.py (the protocol, and how a worker runs commands), choose.py (back ends and probe), bubblewrap.py with
launcher.py and seccomp.py, supervise.py (limits and the end of every process), network.py; landlock.py and seatbelt.py
are other back ends. launcher.py and landlock_child.py run as programs of their own and import nothing of ours. Other
packages import what this one names; supervise.py also has the pipes of MCP programs.
"""

from activities.sandbox.choose import choose
from activities.sandbox.network import NetworkPolicy
from activities.sandbox.sandbox import (
    NONE,
    CommandOptions,
    Commands,
    Pipes,
    Refusing,
    Sandbox,
    SandboxLimits,
    SandboxResult,
    existing_folders,
)

__all__ = ["NONE", "CommandOptions", "Commands", "NetworkPolicy", "Pipes", "Refusing", "Sandbox", "SandboxLimits"]
__all__ += ["SandboxResult", "choose", "existing_folders"]
