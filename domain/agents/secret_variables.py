"""Values of secret variables: sealed before they are stored, opened only for tools, never shown to the model."""

from collections.abc import Mapping

from domain.agents.prompt import Variable, VariableKind
from domain.agents.variable_scope import NeededVariable, stored_names
from domain.errors import Invalid
from domain.redaction import PREFIX, is_sealed
from domain.sealing import KeyRing

UNKNOWN = Variable(description="no agent names it", required=False, kind=VariableKind.SECRET)
SHORTEST = 4  # characters of a secret: replacing shorter ones would make every text unreadable


def seal_secrets(
    keys: KeyRing,
    tenant: str,
    values: Mapping[str, str],
    variables: Mapping[str, Variable | NeededVariable],
    *,
    shortest: int = SHORTEST,
) -> dict[str, str]:
    """The values as they are stored. They are sealed for the tenant, because threads inherit values from each other."""
    sealed = dict(values)
    for name, value in values.items():
        if is_sealed(value):  # it would look like a sealed secret, and opening it would fail
            raise Invalid(f"{name} cannot begin with {PREFIX!r}.", type="unusable-value", variable=name)
        if (variable := variables.get(name)) is None or variable.kind is not VariableKind.SECRET:
            continue
        if len(value) < shortest:
            detail = f"{name} is a secret, so it needs at least {shortest} characters: it is hidden wherever it occurs."
            raise Invalid(detail, type="secret-too-short", variable=name)
        sealed[name] = keys.seal(value, tenant, "variable", name)
    return sealed


def all_sealed(keys: KeyRing, tenant: str, values: Mapping[str, str]) -> dict[str, str]:
    """The values sealed whatever their kind, for a place where any of them may be a secret. Some may be sealed
    already."""
    return {
        name: value if is_sealed(value) else keys.seal(value, tenant, "variable", name)
        for name, value in values.items()
    }


def sealed_for_thread(
    keys: KeyRing, tenant: str, values: Mapping[str, str], known: Mapping[str, Variable]
) -> dict[str, str]:
    """Values set for a thread, as they are stored. A value that no agent names is a secret that nobody can read
    back."""
    unknown = {name: UNKNOWN for name in values if name not in known}
    return stored_names(seal_secrets(keys, tenant, values, {**known, **unknown}), known)


def open_secrets(keys: KeyRing, tenant: str, values: Mapping[str, str]) -> dict[str, str]:
    """The secret values of a session's variables in plain text, for tools and for the redaction of their output."""
    return {
        name: keys.unseal(value, tenant, "variable", name.rpartition(":")[2])  # see variable_scope.held_for
        for name, value in values.items()
        if is_sealed(value)
    }
