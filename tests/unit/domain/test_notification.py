"""Signatures match the convention's own example, and pauses add up to their total."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.notifications import new_secret, pause_after, signature

# the example in the tests of the convention's own libraries
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SIGNED = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_signature_matches_the_example_of_the_convention() -> None:
    body = b'{"test": 2432232314}'
    assert signature([SECRET], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body) == SIGNED
    first, second = signature([new_secret(), SECRET], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body).split(" ")
    assert first != SIGNED == second


@given(st.floats(min_value=0, max_value=60 * 24 * 3_600))
def test_pauses_grow_and_add_up(span: float) -> None:
    found = pauses(span)
    assert sum(found) == pytest.approx(span, abs=1)
    assert all(pause >= 1 for pause in found)
    assert found[:-1] == sorted(found[:-1])


def pauses(span: float) -> list[float]:
    found: list[float] = []
    while (pause := pause_after(sum(found), span)) is not None:
        found.append(pause)
    return found
