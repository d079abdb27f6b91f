"""Running: what a live session shares between its lines: its state, its stop, and the activities under way."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.exceptions import ActivityError, ApplicationError

from domain.conversations.requests import ChildDone, Promote, Taken
from domain.sessions.input_request import RequestAnswered
from domain.sessions.session import LIMIT_REASONS, Line, Reason, SessionInput
from domain.sessions.step import StopRequest

T = TypeVar("T")
PLAN_FIRST = (
    "People want to approve your plan first. Look around as far as you need, then submit the plan with update_plan; "
    "nothing with an effect runs before it is approved."
)
TURNS = 5
MOST_HEARD = 1_000  # messages and ended children that a session remembers


class Stopped(Exception):
    """Raised inside a line when a stop was accepted; the request itself stands on the running session."""


class Ending(Exception):
    """A line can only end; raised where it cannot be returned."""

    def __init__(self, reason: Reason, error_type: str | None = None, error: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.error_type, self.error = reason, error_type, error


class SessionContext:
    def __init__(self, start: SessionInput) -> None:
        self.start = start
        self.state = start.carried or start.first_state()
        if start.approval_required and start.carried is None:
            self.state.line.note = PLAN_FIRST
        self.stopping: StopRequest | None = None
        self.promoted: set[str] = set()  # children that are no longer waited for
        self.waiting = 0  # open input requests
        self.calling = 0  # tool calls under way
        self.spent: Ending | None = None  # what a step has found to be spent
        self._cancelling: asyncio.Task[None] | None = None  # kept, since the event loop does not keep it
        self._activities: set[workflow.ActivityHandle[Any]] = set()
        self._tools: set[workflow.ActivityHandle[Any]] = set()  # those that a graceful stop lets finish

    @property
    def plan_awaits_approval(self) -> bool:
        return self.start.approval_required and not self.state.plan_approved

    @property
    def cancelled(self) -> bool:
        """A stop that is not a limit: it leaves no time for a farewell."""
        return self.stopping is not None and self.stopping.reason not in LIMIT_REASONS

    def halt(self, request: StopRequest) -> None:
        if not self.cancelled:  # a cancel outranks a limit, and the first cancel stands
            self.stopping = request
        self._cancelling = asyncio.create_task(self._cancel(request))

    async def _cancel(self, request: StopRequest) -> None:
        """What runs is told to end. First the event loop has some turns: a result that came together with the stop has
        then arrived; cancelled in that moment the activity would lose it."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
        for handle in list(self._activities if not request.grace_ms else self._activities - self._tools):
            handle.cancel()

    async def wait(self, handle: "workflow.ActivityHandle[T]", *, tool: bool = False) -> T:
        """Wait for an activity so that a stop can reach it; one that came before it started cancels it at once."""
        known = self.stopping
        # a handle begins in the next turn of the event loop; cancelled before that it would end untold to Temporal
        await asyncio.sleep(0)
        self._activities.add(handle)
        if tool:
            self._tools.add(handle)
        if self.cancelled or self.stopping is not known:
            handle.cancel()
        try:
            return await handle
        except asyncio.CancelledError:  # it ended in the very moment in which it was cancelled
            self.check()
            raise
        finally:
            self._activities.discard(handle)
            self._tools.discard(handle)

    def take(self, line: Line) -> list[str]:
        """The messages that enter the context with the next call; only the main line hears what comes from outside."""
        if not line.is_main:
            return []
        messages, self.state.inbox = self.state.inbox, []
        return messages

    def untake(self, messages: list[str] | None) -> None:
        self.state.inbox = [*(messages or []), *self.state.inbox]

    async def more_to_hear(self) -> bool:
        """An answer is not the end while messages are unread, or children are still to report."""
        if self.start.await_children:
            await workflow.wait_condition(
                lambda: bool(self.state.inbox) or not self.state.waking or self.stopping is not None
            )
        self.check()
        return bool(self.state.inbox)

    def hear(self, name: str, payload: Payload) -> None:
        """A signal of the conversation; whoever calls this catches what a malformed one raises."""
        convert = workflow.payload_converter().from_payload
        if name == "message":
            message = convert(payload, Taken)
            if message.id not in self.state.heard:
                self.state.heard = [*self.state.heard, message.id][-MOST_HEARD:]
                self.state.inbox.append(message.id)
        elif name == "withdrawn":  # its outcome was read in another way
            message = convert(payload, Taken)
            self.state.inbox = [waiting for waiting in self.state.inbox if waiting != message.id]
        elif name == "child_done":
            told = convert(payload, ChildDone)
            ended = [told.session_id, *told.more]
            self.state.ended = [*self.state.ended, *ended][-MOST_HEARD:]
            self.state.waking = [waking for waking in self.state.waking if waking not in ended]
        elif name == "answered":
            self.state.answered = [*self.state.answered, convert(payload, RequestAnswered).id][-MOST_HEARD:]
        elif name == "promoted":
            self.promoted.add(convert(payload, Promote).session_id)
        elif name == "stop":
            self.halt(convert(payload, StopRequest))
        else:
            raise ValueError(name)

    def check(self) -> None:
        """To be called after every await: an activity that ends while it is cancelled swallows the cancel."""
        if self.stopping:
            raise Stopped

    def next_version(self, by: int = 1) -> int:
        self.state.version += by
        return self.state.version


def cause(error: ActivityError) -> tuple[str, str]:
    """The type and the sentence of what really failed."""
    inner = error.cause
    if isinstance(inner, ApplicationError):
        return inner.type or "Error", inner.message
    return type(inner).__name__, str(inner)


async def all_of(deeds: list[Coroutine[Any, Any, T]]) -> list[T]:
    """What they came to; if one cannot go on, the others have come to an end too before that is told."""
    done: list[T] = []
    for outcome in await asyncio.gather(*deeds, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
        done.append(outcome)
    return done
