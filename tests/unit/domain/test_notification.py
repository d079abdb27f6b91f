"""Signatures match the convention's own example, pauses add up to their total, and every notice has a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.notifications import Notice, NotificationSubject, new_secret, pause_after, signature

# the example in the tests of the convention's own libraries
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SIGNED = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_signature_matches_the_example_of_the_convention() -> None:
    body = b'{"test": 2432232314}'
    assert signature([SECRET], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body) == SIGNED
    first, second = signature([new_secret(), SECRET], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body).split(" ")
    assert first != SIGNED == second


def test_malformed_secret_is_noticed() -> None:
    with pytest.raises(ValueError, match="not a webhook secret"):
        signature(["whsec_***"], "a", 1, b"")


@given(st.floats(min_value=0, max_value=60 * 24 * 3_600))
def test_pauses_grow_and_add_up(span: float) -> None:
    found = pauses(span)
    assert sum(found) == pytest.approx(span, abs=1)
    assert all(pause >= 1 for pause in found)
    assert found[:-1] == sorted(found[:-1])


def test_three_days_have_about_a_dozen_attempts() -> None:
    assert 10 <= len(pauses(72 * 3_600)) <= 15


@given(st.floats(min_value=0, max_value=1e9), st.floats(min_value=0, max_value=1e7))
def test_attempts_in_between_neither_shorten_nor_prolong_the_span(tried: float, span: float) -> None:
    pause = pause_after(tried, span)
    assert pause is None if tried > span - 1 else pause is not None and tried + pause <= span


def pauses(span: float) -> list[float]:
    found: list[float] = []
    while (pause := pause_after(sum(found), span)) is not None:
        found.append(pause)
    return found


@pytest.mark.parametrize("type", [*NotificationSubject, "input_reminder", "input_escalated", "test", "of tomorrow"])
def test_every_notice_has_a_text(type: str) -> None:
    notice = Notice(type=type, timestamp="now", data={"title": "Count\n files", "task_id": "t"})
    assert notice.subject.endswith(": Count files") and "\n" not in notice.subject and notice.text
    assert Notice(type=type, timestamp="now", data={}).subject


@pytest.mark.parametrize(
    ("budget", "left", "limit", "expected"),
    [
        ("tokens", 1_234_567, 8_000_000, "tokens of the tree: 1,234,567 left of 8,000,000"),
        ("cost_usd", 0.00012, 0.5, "cost_usd of the tree: $0.0001 left of $0.5000"),
        ("ttl", 90_000, 600_000, "ttl of the tree: 1.5 minutes left of 10.0 minutes"),
        ("ttl", 1_000, 5_000, "ttl of the tree: 1 second left of 5 seconds"),
    ],
)
def test_low_budget_is_shown_in_figures_that_people_read(budget: str, left: float, limit: float, expected: str) -> None:
    data = {"budget": budget, "scope": "tree", "left": left, "limit": limit, "task_id": "t"}
    assert expected in Notice(type="budget_low", timestamp="", data=data).text.splitlines()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("clarification", 'errand answer t r "…"'),
        ("tool_approval", "errand approve t r"),
        ("plan_approval", "errand approve t r"),
        ("external_result", "errand answer t r --json-value '…'"),
        ("missing_variables", "errand answer t r --json-value '…'"),
    ],
)
def test_notice_says_how_to_answer(kind: str, expected: str) -> None:
    data = {"kind": kind, "task_id": "t", "request_id": "r", "question": "x", "deadline": "soon"}
    assert f"Answer with: {expected}\n" in Notice(type="input_required", timestamp="", data=data).text
