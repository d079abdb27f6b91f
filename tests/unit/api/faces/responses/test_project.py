"""Event logs as sessions write them become responses and streams, which are parsed as strictly as clients do."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from api.faces.responses.objects import ResponseObject, ResponseState
from api.faces.responses.project import Fold, SessionFacts
from api.faces.responses.view import FoundResponse
from domain import events as ev
from domain.events import Event, Recorded
from domain.ids import derive_id, new_id
from domain.sessions.input_request import InputRequest, OnExpiry, RequestKind
from domain.sessions.session import Limits, Reason, Usage
from store.sessions import SessionRow

SESSION = new_id(0)
NOW = datetime(2026, 11, 1, tzinfo=UTC)
EVENTS: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
ROW = SessionRow(
    tenant="t",
    id=SESSION,
    conversation_id=SESSION,
    thread_id=SESSION,
    workspace_id=SESSION,
    agent_owner="*",
    agent="assistant",
    agent_version=1,
    models=["m"],
    limits=Limits(),
    deadline=NOW,
    created_at=NOW,
    updated_at=NOW,
    live=True,
)


def request(name: str) -> InputRequest:
    return InputRequest(
        id=derive_id(SESSION, name),
        conversation_id=SESSION,
        session_id=SESSION,
        kind=RequestKind.EXTERNAL_RESULT,
        question="?",
        details={"tool": "look_up", "arguments": {"order": name}},
        deadline=NOW,
        on_expiry=OnExpiry.CANCEL,
        created_at=NOW,
    )


A, B = request("a"), request("b")
ASKED = {one.id: one for one in (A, B)}
SUBMITTED = ev.TaskSubmitted(agent="assistant", agent_version=1, title="")


def began(step: int) -> Event:
    return ev.StepStarted(step=step, description="")


def replied(step: int, calls: int = 0, tokens: int = 10) -> Event:
    total = Usage(input_tokens=tokens * step, output_tokens=step)
    return ev.UsageUpdated(model="m", step=step, call=Usage(), total=total, calls=calls)


def asks(one: InputRequest) -> Event:
    return ev.InputRequired(request_id=one.id, kind=one.kind, question="?", deadline=NOW)


def got(one: InputRequest) -> Event:
    return ev.InputReceived(request_id=one.id, kind=one.kind, by="x")


def called(tool: str) -> Event:
    return ev.ToolCalled(tool=tool, args="notes.md")


def returned(tool: str) -> Event:
    return ev.ToolReturned(tool=tool, state="ok", preview=f"{tool}: ok", rule=None)


def ended(reason: Reason = Reason.GOAL_REACHED, output: str | None = None, error: str | None = None) -> Event:
    usage = Usage(input_tokens=100, output_tokens=9)
    kind = ev.ENDED[reason.status]
    return kind(status=reason.status, reason=reason, partial=False, usage=usage, output=output, error=error)


def said(step: int, text: str) -> list[Event]:
    return [ev.MessageDelta(step=step, text=text[:3]), ev.MessageDelta(step=step, text=text[3:]),
            ev.Message(step=step, text=text)]  # fmt: skip


def recorded(log: list[Event]) -> list[Recorded]:
    return [
        Recorded(
            session_id=SESSION,
            seq=place + 1,
            conv_seq=place + 1,
            type=event.type,
            at=NOW + timedelta(seconds=place),
            data=event.model_dump(mode="json"),
        )
        for place, event in enumerate(log)
    ]


def folded(log: list[Event]) -> Fold:
    fold = Fold(SessionFacts(SESSION, frozenset({"look_up"})))
    for event in recorded(log):
        fold.feed(event, ASKED)
    return fold


def shown(state: ResponseState) -> ResponseObject:
    return FoundResponse(ROW, {}).show_part(1, state)


def streamed(fold: Fold) -> list[ResponseStreamEvent]:
    """Read the stream of a part as clients do: parse each event strictly, then accumulate."""
    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=[], text_format=NO_FORMAT)
    seen = []
    for number, one in enumerate(fold.parts[0].events):
        raw = json.loads(json.dumps(one.wire(number, shown(one.state) if one.state else None)))
        event = EVENTS.validate_python(raw)
        assert event.type == raw["type"] and event.sequence_number == number
        state.handle_event(event)
        seen.append(event)
    return seen


from openai import omit as NO_FORMAT  # noqa: E402


def final(fold: Fold) -> Response:
    """The object that a GET returns, parsed strictly; it is the same without the deltas."""
    return Response.model_validate(shown(fold.parts[0].state).model_dump(mode="json"), strict=True)


WORKING = [SUBMITTED, ev.TaskStarted(model="m"), began(1)]
PARALLEL = [*WORKING, replied(1, 3), called("look_up"), asks(A), called("bash"), returned("bash"),
            called("look_up"), asks(B)]  # fmt: skip
ANSWERED = [*PARALLEL, got(A), ev.InputReminder(request_id=B.id, kind=B.kind, question="?", deadline=NOW),
            returned("look_up"), got(B), returned("look_up"), began(2), *said(2, "Both."), replied(2),
            ended(output="Both.")]  # fmt: skip


@pytest.mark.parametrize(
    "broken",
    [
        [ev.ModelRetry(step=1, attempt=1, model="m", reason="cut", next_at=NOW), ev.AttemptReset(step=1, attempt=2)],
        [ev.ModelSwitched(step=1, from_model="m", to_model="n", reason="cut")],
    ],
    ids=["retry", "another model"],
)
def test_broken_text_is_closed_as_incomplete_before_the_next_begins(broken: list[Event]) -> None:
    wrong: list[Event] = [ev.ThinkingDelta(step=1, text="Hm"), ev.MessageDelta(step=1, text="Wro")]
    fold = folded([*WORKING, *wrong, *broken, *said(1, "Right."), replied(1), ended(output="Right.")])
    pausing = streamed(folded([*WORKING, *wrong, broken[0]]))
    assert pausing[-1].type == "response.output_item.done"  # before the pause, not after it
    events = streamed(fold)
    begun = [place for place, one in enumerate(events) if one.type == "response.output_item.added"]
    closed = [place for place, one in enumerate(events) if one.type == "response.output_item.done"]
    assert len(begun) == len(closed) == 3 and max(closed[:2]) < begun[2]
    done = [events[place].item for place in closed]  # type: ignore[union-attr]
    assert [item.status for item in done] == ["incomplete", "incomplete", "completed"]  # type: ignore[union-attr]
    assert [one.text for one in events if one.type == "response.output_text.done"] == ["Wro", "Right."]
    bare = [*WORKING, *broken, ev.Message(step=1, text="Right."), replied(1), ended(output="Right.")]
    assert [item.id for item in final(fold).output] == [item.id for item in final(folded(bare)).output]


SPENT = ("incomplete", "max_output_tokens", "response.incomplete")
TOO_MANY = ("incomplete", "max_messages", "response.incomplete")
FAILED = ("failed", "server_error", "response.failed")
REFUSED = ("failed", "invalid_prompt", "response.failed")
CANCELLED = ("cancelled", None, "response.incomplete")
ENDS = {
    **dict.fromkeys((Reason.TOKEN_BUDGET, Reason.COST_BUDGET, Reason.TREE_BUDGET), SPENT),
    **dict.fromkeys((Reason.STEP_LIMIT, Reason.TURN_LIMIT, Reason.TOOL_LIMIT), TOO_MANY),
    **dict.fromkeys((Reason.ERROR, Reason.TTL, Reason.LOOP_DETECTED, Reason.LOST), FAILED),
    **dict.fromkeys((Reason.ACCEPTANCE_FAILED, Reason.CONSTRAINT_VIOLATED), FAILED),
    **dict.fromkeys((Reason.POLICY_DENIED, Reason.NEEDS_INPUT), REFUSED),
    **dict.fromkeys((Reason.CALLER_CANCEL, Reason.INTERRUPTED, Reason.TERMINATED, Reason.INPUT_TIMEOUT), CANCELLED),
}


@pytest.mark.parametrize("reason", sorted(set(Reason) - {Reason.GOAL_REACHED}))
def test_every_end_has_its_status(reason: Reason) -> None:
    fold = folded([*WORKING, ev.MessageDelta(step=1, text="Unfini"), ended(reason, error="it broke")])
    events = streamed(fold)
    response = final(fold)
    named = response.incomplete_details.reason if response.incomplete_details else None
    detail = named or (response.error.code if response.error else None)
    assert (response.status, detail, events[-1].type) == ENDS[reason]
    assert response.output == []


def test_cancel_shows_at_once_and_reads_of_any_length_agree() -> None:
    stop = ev.CancelRequested(reason=Reason.CALLER_CANCEL, by="x")
    assert final(folded([*WORKING, stop])).status == "cancelled"
    assert final(folded([SUBMITTED])).status == "queued" and final(folded(WORKING)).status == "in_progress"
    whole = [one.model_dump() for one in folded(ANSWERED).parts[0].events]
    # a cursor has the same meaning in every process, however much of the log it has read
    for length in range(1, len(ANSWERED)):
        begun = [one.model_dump() for one in folded(ANSWERED[:length]).parts[0].events]
        assert whole[: len(begun)] == begun
