"""Events have unique, stable names and the fields that the contract promises."""

from collections.abc import Iterator

import pytest

from domain import events
from domain.events import EVENTS, Ended, Event, TextDelta


def all_events(base: type[Event] = Event) -> Iterator[type[Event]]:
    for event in base.__subclasses__():
        yield event
        yield from all_events(event)


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
