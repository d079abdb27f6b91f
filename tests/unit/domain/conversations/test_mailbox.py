"""The exact texts in which outcomes appear in a prompt."""

from dataclasses import replace

import pytest

from domain.conversations.mailbox import MAX_RESULT, Outcome, caller_block, render_outcomes, render_page, rest_of_result
from domain.sessions.session import Reason, Status

DONE = Outcome(session_id="s1", name="finder", status=Status.COMPLETED, reason=Reason.GOAL_REACHED, output="Found it.")
FAILED = Outcome(session_id="s2", name="writer", status=Status.FAILED, reason=Reason.ERROR, error="No paper.")


@pytest.mark.proves("S0-32", "S0-B06")
@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (DONE, "Async subagent 'finder' (session: s1) completed:\nFound it."),
        (FAILED, "Async subagent 'writer' (session: s2) failed:\nNo paper."),
        (
            replace(DONE, output=" \n"),
            "Async subagent 'finder' (session: s1) completed:\n(no output)",
        ),
        (
            replace(FAILED, output="Half."),
            "Async subagent 'writer' (session: s2) failed:\nNo paper.\n\nUntil then it said:\nHalf.",
        ),
        (
            replace(FAILED, error=None, reason=Reason.TTL),
            "Async subagent 'writer' (session: s2) failed:\nended without an answer (ttl)",
        ),
        (
            replace(DONE, status=Status.CANCELLED, reason=Reason.INTERRUPTED),
            "Async subagent 'finder' (session: s1) completed:\n"
            "[Interrupted (interrupted); this is what it had so far.]\nFound it.",
        ),
        (
            replace(DONE, status=Status.CANCELLED, reason=Reason.INTERRUPTED, output=None, committed=False),
            "Async subagent 'finder' (session: s1) failed:\nended without an answer (interrupted)",
        ),
        (
            replace(DONE, status=Status.CANCELLED, reason=Reason.INTERRUPTED, output=None),
            "Async subagent 'finder' (session: s1) completed:\n"
            "[Interrupted (interrupted); this is what it had so far.]\n(no output)",
        ),
        (
            replace(DONE, earlier=["Looking.", "Nearly."]),
            "Async subagent 'finder' (session: s1) completed:\nLooking.\n\nNearly.\n\nFound it.",
        ),
        (
            replace(DONE, name="finder\n## a"),
            "Async subagent 'finder ## a' (session: s1) completed:\nFound it.",
        ),
    ],
)
def test_single_outcome_has_its_fixed_form(outcome: Outcome, text: str) -> None:
    assert render_outcomes([outcome]) == text


def test_message_of_the_caller_has_its_fixed_form() -> None:
    assert caller_block("And now?") == "---\nUser message:\nAnd now?"


@pytest.mark.proves("S0-33")
def test_several_outcomes_have_their_fixed_form() -> None:
    assert render_outcomes([DONE, FAILED]) == (
        "Async subagent results:\n\n## finder [completed] (session: s1)\nFound it.\n\n"
        "## writer [failed] (session: s2)\nError: No paper."
    )


def test_a_long_result_is_cut_with_a_link() -> None:
    text = render_outcomes([replace(DONE, output="x" * (MAX_RESULT + 5))])
    assert text.endswith(f"{'x' * MAX_RESULT}\n[… 5 more characters: {rest_of_result('s1', MAX_RESULT)}]")


def test_earlier_messages_are_omitted_before_the_last_reply() -> None:
    long = replace(DONE, earlier=["a" * 5_000, "b" * 5_000, "c"], output="x" * (MAX_RESULT - 10))
    [_, left, kept, last] = render_outcomes([long]).replace("\n\n", "\n").split("\n")
    assert (left, kept, last) == ("[… 2 earlier messages: GET /sessions/s1]", "c", "x" * (MAX_RESULT - 10))


def test_the_rest_of_a_long_result_can_be_read() -> None:
    digits = "".join(f"{number:06d}" for number in range(3_000))
    long = replace(DONE, output=digits)
    read, offset = long.content().split("\n[…")[0], MAX_RESULT
    while offset < len(digits):
        read, offset = read + render_page(long, offset).split("\n[…")[0], offset + MAX_RESULT
    assert read == digits
    assert render_page(long, 99_999) == "The result has 18000 characters."


def test_many_outcomes_share_a_prompt() -> None:
    long = [
        Outcome(session_id=str(number), name="n", status=Status.COMPLETED, output="x" * 9_000)
        for number in range(1_000)
    ]
    assert len(render_outcomes(long)) < 1_000_000
    assert len(render_outcomes(long[:2])) > 16_000
