"""SessionContext: the data that all lines of a running session share: its state, its stop and its running
activities."""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError

from domain import wire
from domain.agents.definition import Sides
from domain.sessions.session import (
    LIMIT_REASONS,
    BindingCall,
    CallState,
    Limits,
    Reason,
    StopRequest,
    ToolOutcome,
    preview,
)
from domain.sessions.session_state import Line, SessionInput, StartedChild

T = TypeVar("T")
PLAN_FIRST = (
    "People want to approve your plan first. Look around as far as you need, then submit the plan with update_plan; "
    "nothing with an effect runs before it is approved."
)
TURNS = 5
REMEMBERED = 1_000  # messages, ended children and answered requests
NAMED_CHILDREN = 20  # in the details; all are counted
# at most, and at most a sixth of the session's time, so that watchers see a low budget before
SUMMARY_TIME = timedelta(seconds=45)
END_TIME = timedelta(seconds=1)  # after the deadline, for what is being stopped


class Stopped(Exception):
    """Raised inside a line after a stop was accepted; the request itself is in `SessionContext.stopping`."""


class Ending(Exception):
    """The end of a line; raised where it cannot be returned."""

    def __init__(
        self,
        reason: Reason,
        error_type: str | None = None,
        error: str | None = None,
        binding: BindingCall | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason, self.error_type, self.error = reason, error_type, error
        self.binding = binding  # the call whose message is the session's result


class SessionContext:
    def __init__(self, start: SessionInput) -> None:
        self.start = start
        self.state = start.carried or start.first_state()
        if start.approval_required and self.state.step == 0:
            self.state.line.note = PLAN_FIRST
        self.stopping: StopRequest | None = None
        self.outdated = False  # this run does not know what was committed: it was reset, or started again
        self.promoted: set[str] = set()  # children that no longer block a call
        self.waiting = 0  # open input requests
        self.waiting_for: dict[str, str] = {}  # their subjects by id, for the Web UI
        self.handed_over = False  # the last step gave the line another agent, so its loop starts again
        self.calling = 0  # tool calls that are running
        self.spent: Ending | None = None  # the limit that the last step has exhausted
        self._cancelling: asyncio.Task[None] | None = None  # a reference, because the event loop keeps only a weak one
        self._activities: set[workflow.ActivityHandle[Any]] = set()
        self._tools: set[workflow.ActivityHandle[Any]] = set()  # those that a graceful stop lets finish

    @property
    def sides(self) -> Sides | None:
        """The sides of the session's current agent; None for a plain agent."""
        return self.state.sides if self.state.handed_over else self.start.sides

    def has_hooks(self, line: Line) -> bool:
        """Whether the agent of a line has hooks."""
        if not line.is_main:
            return line.hooked
        return self.sides is not None and line.agent.side in self.sides.hooked

    def handler_of(self, line: Line) -> str | None:
        """The handler that takes the turns of a line; None if a model does."""
        sides = self.sides if line.is_main else None
        return sides.of(line.agent.side).handler if sides is not None else None

    @property
    def limits(self) -> Limits:
        return self.state.limits or self.start.limits

    @property
    def deadline(self) -> datetime:
        return self.start.deadline + timedelta(milliseconds=self.limits.ttl_ms - self.start.limits.ttl_ms)

    @property
    def stops_at(self) -> datetime:
        """When the work stops, so that the last summary fits before the deadline."""
        return self.deadline - min(SUMMARY_TIME, max(self.deadline - workflow.info().start_time, timedelta()) / 6)

    def time_left(self, more: timedelta = timedelta()) -> timedelta:
        """Until the deadline, or so much later."""
        return max(self.deadline + more - workflow.now(), timedelta())

    def raise_limits(self, limits: Limits) -> None:
        """Raise limits, effective from the next check on. A limit is never lowered, so a repeated or late raise is
        harmless."""
        self.state.limits = self.limits.raise_to(limits)
        if self.spent is not None and self.spent.reason is Reason.TOOL_LIMIT:
            self.spent = None  # if there are still too many calls, the next step notices

    @property
    def plan_awaits_approval(self) -> bool:
        return self.start.approval_required and not self.state.plan_approved

    @property
    def cancelled(self) -> bool:
        """Whether it is stopped for another reason than a limit: that leaves no time for a last summary."""
        return self.stopping is not None and self.stopping.reason not in LIMIT_REASONS

    def halt(self, request: StopRequest) -> None:
        if not self.cancelled:  # a cancel has priority over a limit, and the first cancel counts
            self.stopping = request
        self._cancelling = asyncio.create_task(self._cancel(request))

    async def _cancel(self, request: StopRequest) -> None:
        """Cancel the running activities, except tools that a graceful stop lets finish."""
        # A result that arrives in the same workflow task as the stop needs several turns of the event loop to pass
        # through the activity's handle to the line that waits for it (future, handle, `wait`, the line). If the handle
        # is cancelled within these turns it raises instead, and a result that is in the history and was committed would
        # be lost to the session. Five turns are more than that path takes, and the number is the same in a replay.
        for _ in range(TURNS):
            await asyncio.sleep(0)
        for handle in list(self._activities if not request.grace_ms else self._activities - self._tools):
            handle.cancel()

    async def wait(self, handle: "workflow.ActivityHandle[T]", *, tool: bool = False) -> T:
        """Wait for an activity in such a way that a stop can reach it. A stop that came before its start cancels it at
        once."""
        known = self.stopping
        # A handle starts its activity in the next turn of the event loop. If it were cancelled before, it would end and
        # Temporal would never learn of the activity.
        await asyncio.sleep(0)
        self._activities.add(handle)
        if tool:
            self._tools.add(handle)
        if self.cancelled or self.stopping is not known:
            handle.cancel()
        try:
            return await handle
        except FailureError as error:
            if self.is_outdated(error):
                self.halt(StopRequest(reason=Reason.LOST, by="errand"))
                raise Stopped from error
            raise
        except asyncio.CancelledError:  # it ended at the same moment as it was cancelled
            self.check()
            raise
        finally:
            self._activities.discard(handle)
            self._tools.discard(handle)

    def is_outdated(self, error: BaseException) -> bool:
        """Whether an activity was refused because the committed state differs from what this run assumes."""
        inner = error.cause if isinstance(error, ActivityError) else error
        self.outdated = self.outdated or (isinstance(inner, ApplicationError) and inner.type == wire.OUTDATED)
        return self.outdated

    @contextlib.contextmanager
    def taking(self, line: Line) -> Iterator[list[str]]:
        """The messages that enter the context with the next reply; without one they are in the inbox again. Only the
        main line receives messages. While attempts are chosen from, they wait for the model."""
        if not line.is_main or (self.chooses(line) and line.head is not None):
            yield []
            return
        taken, self.state.inbox = self.state.inbox, []
        try:
            yield taken
        except BaseException:
            self.state.inbox = [*taken, *self.state.inbox]
            raise

    def chooses(self, line: Line) -> bool:
        """Whether other sessions do its task, and none of their results is its own yet."""
        return self.start.attempts and line.is_main and not self.state.chosen

    async def has_unread(self) -> bool:
        """Whether an answer is not the end: messages are unread, or children have yet to report."""
        if self.start.await_children:
            await workflow.wait_condition(
                lambda: bool(self.state.inbox) or not self.state.waking or self.stopping is not None
            )
        self.check()
        return bool(self.state.inbox)

    def receive(self, message_id: str) -> None:
        """Put a message into the inbox; a repeated signal is ignored."""
        if message_id not in self.state.seen_messages:
            self.state.seen_messages = [*self.state.seen_messages, message_id][-REMEMBERED:]
            self.state.inbox.append(message_id)

    def withdraw(self, message_id: str) -> None:
        self.state.inbox = [waiting for waiting in self.state.inbox if waiting != message_id]

    def end_children(self, session_ids: list[str]) -> None:
        self.state.ended = [*self.state.ended, *session_ids][-REMEMBERED:]
        self.state.waking = [waking for waking in self.state.waking if waking not in session_ids]

    def add_child(self, session_id: str, title: str, *, wakes: bool) -> None:
        if any(child.id == session_id for child in self.state.children):  # restored from what was committed
            return
        child = StartedChild(id=session_id, title=preview(title, 80))
        self.state.children = [*self.state.children, child][-NAMED_CHILDREN:]
        self.state.children_started += 1
        if wakes and session_id not in self.state.ended:  # it may have ended already
            self.state.waking.append(session_id)

    def record_answer(self, request_id: str) -> None:
        self.state.answered = [*self.state.answered, request_id][-REMEMBERED:]

    @property
    def history_is_long(self) -> bool:
        """Whether to continue as new: a replay must fit into the timeout of a workflow task."""
        info = workflow.info()
        most = self.start.renew_after
        return info.is_continue_as_new_suggested() or (most is not None and info.get_current_history_length() >= most)

    def check(self) -> None:
        """Call this after every await: an activity that ends while it is being cancelled swallows the cancel."""
        if self.stopping:
            raise Stopped

    def next_version(self, by: int = 1) -> int:
        self.state.version += by
        return self.state.version


def cause(error: ActivityError) -> tuple[str, str]:
    """The type and the message of the underlying failure."""
    inner = error.cause
    if isinstance(inner, ApplicationError):
        return inner.type or "Error", inner.message
    return type(inner).__name__, str(inner)


def unknown_outcome(index: int, name: str, error: ActivityError) -> ToolOutcome:
    """The outcome of a call whose activity failed. The store has no result for it, which the next model call shows."""
    return ToolOutcome(index=index, name=name, state=CallState.UNKNOWN, preview=cause(error)[1][:160])


def read_stop_reason(error: ActivityError) -> Reason:
    """The reason of the cancel that the row holds."""
    inner = error.cause
    details = inner.details if isinstance(inner, ApplicationError) else ()
    return Reason(details[0]) if details else Reason.CALLER_CANCEL


def join_notes(*notes: str | None) -> str | None:
    """Join several notes for the model into one."""
    return "\n\n".join(note for note in notes if note) or None


async def all_of(coroutines: list[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all. If one raises, wait for the others to end before the exception is passed on."""
    done: list[T] = []
    for outcome in await asyncio.gather(*coroutines, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
        done.append(outcome)
    return done
