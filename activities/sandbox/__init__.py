"""The sandbox that runs the model's commands: one protocol and several back ends. A probe chooses the back end."""

from activities.sandbox.choose import choose
from activities.sandbox.commands import Commands, existing
from activities.sandbox.network import NetworkPolicy
from activities.sandbox.sandbox import Pipes, Refusing, Sandbox, SandboxLimits, SandboxResult

__all__ = ["Commands", "NetworkPolicy", "Pipes", "Refusing", "Sandbox", "SandboxLimits", "SandboxResult"]
__all__ += ["choose", "existing"]
