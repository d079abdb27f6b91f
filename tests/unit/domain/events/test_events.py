"""Events have unique, stable names and the fields that the contract promises."""

from collections.abc import Iterator

import pytest

from domain import events
from domain.events import ENDED, EVENTS, Ended, Event, TextDelta
from domain.sessions.session import TERMINAL


def all_events(base: type[Event] = Event) -> Iterator[type[Event]]:
    for event in base.__subclasses__():
        yield event
        yield from all_events(event)


NAMED = list(EVENTS)


def test_the_list_names_every_event() -> None:
    assert set(EVENTS) == set(all_events()) - {Ended, TextDelta}


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (events.StepStarted, ["step", "description"]),
        (events.ToolCalled, ["tool", "args", "arguments"]),  # the last field is our addition
        (events.Progress, ["message"]),
        (events.StepCompleted, ["step", "result"]),
        (events.Replanning, ["reason"]),
    ],
)
def test_the_promised_five_have_exactly_their_fields(event: type[Event], fields: list[str]) -> None:
    assert list(event.model_fields) == fields


def test_each_final_state_has_its_last_event_and_no_other_event_is_last() -> None:
    assert set(ENDED) == TERMINAL
    assert {event for event in NAMED if event.terminal} == set(ENDED.values())
    assert {ENDED[status].type for status in TERMINAL} == {f"task_{status}" for status in TERMINAL}
