"""Values of secret variables: sealed before they are stored, opened only for tools, never shown to the model."""

from collections.abc import Mapping

from domain.agents.prompt import Variable, VariableKind
from domain.sealed_text import is_sealed
from domain.sealing import KeyRing


def seal_secrets(
    keys: KeyRing, tenant: str, values: Mapping[str, str], variables: Mapping[str, Variable]
) -> dict[str, str]:
    """The values as they are stored. The context is the tenant's, because threads inherit values from each other."""
    return {
        name: keys.seal(value, tenant, "variable", name) if _secret(variables.get(name)) else value
        for name, value in values.items()
    }


def open_secrets(keys: KeyRing, tenant: str, values: Mapping[str, str]) -> dict[str, str]:
    """The secret values among a session's variables, in plain text: for tools, and for what redacts their output."""
    return {name: keys.unseal(value, tenant, "variable", name) for name, value in values.items() if is_sealed(value)}


def _secret(variable: Variable | None) -> bool:
    return variable is not None and variable.kind is VariableKind.SECRET
