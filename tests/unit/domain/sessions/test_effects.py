"""The ledger shows for each effect what the state of its call means."""

import pytest

from domain.sessions.effects import EffectKind, state_of, withheld
from domain.sessions.step import CallState, Effect


@pytest.mark.parametrize(
    ("state", "dry", "ended", "shown"),
    [
        ("ok", False, False, "done"),
        ("ok", True, True, "would_have"),
        ("failed", False, True, "failed"),
        ("failed", True, True, "failed"),
        ("unknown", False, True, "unknown"),
        ("cancelled", False, True, "unknown"),  # it may have happened in part
        ("cancelled", True, True, "failed"),  # nothing was to happen
        ("started", False, False, "running"),
        ("started", False, True, "unknown"),
    ],
)
def test_each_effect_has_its_state(state: str, dry: bool, ended: bool, shown: str) -> None:
    assert state_of(CallState(state), dry=dry, ended=ended) == shown


def test_a_dry_run_withholds_what_touches_anything() -> None:
    assert withheld(EffectKind.FILE, Effect.IDEMPOTENT) and withheld(EffectKind.CALL, Effect.ONCE)
    assert not withheld(EffectKind.CALL, Effect.READ)
    assert not withheld(None, Effect.IDEMPOTENT)  # a plan touches nothing
    assert not withheld(EffectKind.SUBAGENT, Effect.IDEMPOTENT)  # it is a dry run itself
