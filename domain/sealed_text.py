"""Recognises and hides sealed texts. It is separate from the encryption, which workflows must not import."""

from typing import Any

PREFIX = "sealed:"
MASK = "(secret)"


def is_sealed(value: object) -> bool:
    return isinstance(value, str) and value.startswith(PREFIX)


def masked(value: Any) -> Any:
    """A JSON value as it may be shown: every sealed text in it is replaced."""
    if isinstance(value, dict):
        return {name: masked(one) for name, one in value.items()}
    if isinstance(value, list):
        return [masked(one) for one in value]
    return MASK if is_sealed(value) else value
