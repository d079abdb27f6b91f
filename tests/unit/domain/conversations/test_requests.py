"""The state that a conversation keeps when it continues as new: live threads and recent answers."""

from datetime import UTC, datetime, timedelta

from domain.conversations.requests import (
    REMEMBERED,
    REMEMBERED_FOR,
    REMEMBERED_LENGTH,
    ConversationState,
    Fired,
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
    assert set(state.carry_over(NOW).threads) == set(threads)


def test_answers_are_forgotten_by_number_age_and_length() -> None:
    state, fired = ConversationState(), Fired(session_id="s")
    for n in range(REMEMBERED + 10):
        state.remember(str(n), fired, NOW)
    assert len(state.remembered) == REMEMBERED and "9" not in state.remembered
    state.remember("long", Fired(session_id="x" * REMEMBERED_LENGTH), NOW + timedelta(minutes=1))
    assert list(state.remembered) == []
    state.remember("old", fired, NOW)
    state.remember("new", fired, NOW + REMEMBERED_FOR)
    assert list(state.carry_over(NOW + REMEMBERED_FOR).remembered) == ["new"]
    carried = state.carry_over(NOW + REMEMBERED_FOR + timedelta(minutes=1))
    assert ConversationState.model_validate_json(carried.model_dump_json()).remembered["new"].answer == fired
