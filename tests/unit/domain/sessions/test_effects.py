"""The ledger derives the state of each effect from the state of its call."""

import pytest

from domain.sessions.session import CallState, Effect, EffectKind, is_withheld, state_of


@pytest.mark.parametrize(
    ("state", "dry", "ended", "shown"),
    [
        ("ok", False, False, "done"),
        ("ok", True, True, "would_have"),
        ("failed", False, True, "failed"),
        ("failed", True, True, "failed"),
        ("unknown", False, True, "unknown"),
        ("cancelled", False, True, "unknown"),  # the effect may have happened in part
        ("cancelled", True, True, "failed"),  # a dry run has no effect
        ("started", False, False, "running"),
        ("started", False, True, "unknown"),
    ],
)
def test_each_effect_has_its_state(state: str, dry: bool, ended: bool, shown: str) -> None:
    assert state_of(CallState(state), dry=dry, ended=ended) == shown


def test_a_dry_run_withholds_what_touches_anything() -> None:
    assert is_withheld(EffectKind.FILE, Effect.IDEMPOTENT) and is_withheld(EffectKind.CALL, Effect.ONCE)
    assert not is_withheld(EffectKind.CALL, Effect.READ)
    assert not is_withheld(None, Effect.IDEMPOTENT)  # a plan changes nothing outside the session
    assert not is_withheld(EffectKind.SUBAGENT, Effect.IDEMPOTENT)  # the subagent is itself a dry run
