"""The sandbox that runs the model's commands: one protocol and several back ends. A probe chooses the back end."""

from activities.sandbox.choose import choose
from activities.sandbox.network import NetworkPolicy
from activities.sandbox.sandbox import Commands, Pipes, Refusing, Sandbox, SandboxLimits, SandboxResult, existing

__all__ = ["Commands", "NetworkPolicy", "Pipes", "Refusing", "Sandbox", "SandboxLimits", "SandboxResult"]
__all__ += ["choose", "existing"]
