"""The state that a conversation carries from run to run: live threads, and recent answers."""

from datetime import UTC, datetime, timedelta

from domain.conversations.state import (
    REMEMBERED,
    REMEMBERED_FOR,
    REMEMBERED_LENGTH,
    ConversationState,
    Live,
    Thread,
    WaitingMessage,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_idle_threads_are_left_behind() -> None:
    threads = {
        "root": Thread(),
        "named": Thread(parent="root", name="writer"),
        "live": Thread(parent="root", name="live", live="s1"),
        "spawner": Thread(parent="root", name="spawner"),
        "waits": Thread(parent="root", name="waits", inbox=[WaitingMessage(id="m")]),
        "queued": Thread(parent="root", name="queued", queue=["s3"]),
        "notified": Thread(parent="root", name="notified", ended=["s4"]),
    }
    idle = {f"idle{n}": Thread(parent="root", name=f"idle{n}", last=f"s{n}") for n in range(50)}
    state = ConversationState(threads=threads | idle, live={"s1": Live(thread="live", spawner="spawner")})
    assert set(state.carried(NOW).threads) == set(threads)


def test_answers_are_forgotten_by_number_age_and_length() -> None:
    state = ConversationState()
    for n in range(REMEMBERED + 10):
        state.remember(str(n), "{}", NOW)
    assert len(state.answers) == len(state.answered_at) == REMEMBERED and "9" not in state.answers
    state.remember("long", "x" * REMEMBERED_LENGTH, NOW + timedelta(minutes=1))
    assert list(state.answers) == ["long"]
    state.remember("new", "{}", NOW + REMEMBERED_FOR)
    assert list(state.carried(NOW + REMEMBERED_FOR).answers) == ["new"]
    assert state.carried(NOW + REMEMBERED_FOR + timedelta(minutes=1)).answers == {"new": "{}"}
