"""Schedules: when a message is sent to an agent, and when it is not; and missions, which are schedules with bounds."""

import functools
import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, available_timezones

from errand import models
from pydantic import AfterValidator, BaseModel, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from domain.amounts import format_count
from domain.conversations.mailbox import quote
from domain.frozen import Frozen
from domain.ids import derive_id
from domain.json_object import Stored
from domain.missions import RISK, Hold, HoldKind, MissionRules, MissionStatus, Spent
from domain.sessions.new_session import NewSession
from domain.sessions.writes import NewBudget
from domain.task import GivenTime, Id, Strict

# A schedule: when a message is sent, to whom, and what happens if the last run is not over; and the record of a
# tick.


DAY_MS = 24 * 3_600_000
YEAR_MS = 366 * DAY_MS
LATE = timedelta(seconds=5)  # a tick that is later than this counts as missed
LAST_YEAR = 2100  # Temporal's calendars end there


def _cron(text: str) -> str:
    try:
        check_cron(text)
    except CronError as error:
        raise PydanticCustomError("invalid_cron", "{reason}", {"reason": str(error)}) from None
    return text


_zones = functools.cache(available_timezones)  # it reads a directory


def _zone(name: str) -> str:
    if name not in _zones():
        raise PydanticCustomError("unknown_zone", "there is no such time zone; use an IANA name such as Europe/Berlin")
    return name


Cron = Annotated[str, StringConstraints(max_length=200), AfterValidator(_cron)]
Zone = Annotated[str, StringConstraints(min_length=1, max_length=64), AfterValidator(_zone)]
ClockTime = Annotated[str, StringConstraints(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
ScheduleName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]


class Overlap(StrEnum):
    """What a tick does while the previous run is not over."""

    SKIP = "skip"
    QUEUE = "queue"  # it waits for its turn in the conversation
    STEER = "steer"  # the running session reads it before its next step
    ALLOW = "allow"  # both run, each in a separate conversation
    CANCEL_PREVIOUS = "cancel_previous"


class ContextMode(StrEnum):
    """What a run knows about earlier runs."""

    CONTINUE = "continue"  # all of it: every run is a session of one conversation
    FORK = "fork"  # what the conversation knows; the run leaves no trace in it
    ISOLATED = "isolated"  # nothing


class MissedTicks(StrEnum):
    """What happens to ticks that were missed while Temporal or the worker was down, if they are within `catch_up`."""

    EACH = "each"  # each of them runs, late
    ONCE = "once"  # the latest of them runs
    SKIP = "skip"  # none


class QuietHours(Strict):
    """From `start` until `end` in the schedule's time zone. If the end is the earlier one, the span crosses
    midnight."""

    start: ClockTime
    end: ClockTime

    def cover(self, moment: datetime, zone: str) -> bool:
        clock = moment.astimezone(ZoneInfo(zone)).time()
        start, end = time.fromisoformat(self.start), time.fromisoformat(self.end)
        return start <= clock < end if start <= end else clock >= start or clock < end


class Check(Strict):
    """A sandboxed command in the workspace, or one of the agent's read-only tools. Its output is passed to the agent.
    Without output, or with exit code 3, the run is skipped."""

    run: Annotated[str, StringConstraints(min_length=1, max_length=4_000)] | None = None
    tool: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None
    input: dict[str, Any] = Field(default_factory=dict, description="the arguments of the tool")
    timeout_s: int = Field(default=60, ge=1, le=600)

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.run is None) == (self.tool is None) or (self.input and self.tool is None):
            raise PydanticCustomError("needs", "give a command to run, or a tool with its input")
        return self


class Timing(Strict):
    """Exactly one of cron, every and at."""

    cron: Cron | None = Field(default=None, description="five fields: minute hour day-of-month month day-of-week")
    timezone: Zone = Field(default="UTC", description="IANA name; for cron and quiet hours")
    every: int | None = Field(default=None, ge=1_000, le=YEAR_MS, description="milliseconds")
    at: GivenTime | None = Field(default=None, description="once, at this time")
    jitter: int = Field(default=0, ge=0, le=DAY_MS, description="milliseconds; each tick is late by a part of it")
    catch_up: int = Field(
        default=600_000, ge=10_000, le=YEAR_MS, description="milliseconds; a tick that was missed for longer is dropped"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(given is not None for given in (self.cron, self.every, self.at)) != 1:
            raise PydanticCustomError("needs", "give exactly one of cron, every and at")
        return self


class ScheduleRules(Timing):
    """The settings of a schedule that a caller chooses, besides the task."""

    name: ScheduleName
    context: ContextMode = Field(default=ContextMode.CONTINUE, strict=False)
    overlap: Overlap = Field(default=Overlap.SKIP, strict=False)
    missed: MissedTicks = Field(
        default=MissedTicks.EACH, strict=False, description="ticks that are late by over five seconds"
    )
    check: Check | None = None
    quiet_hours: QuietHours | None = None
    silent_reply: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = Field(
        default=None, description="a run that answers exactly this notifies nobody"
    )
    pause_after_failures: int | None = Field(default=5, ge=1, le=1_000, description="in a row; null: never")
    conversation_id: Id | None = Field(default=None, description="whose messages these are; null: its own conversation")
    mission: MissionRules | None = Field(default=None, description="within which bounds it runs, and until when")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.mission is not None:
            if self.overlap not in (Overlap.SKIP, Overlap.QUEUE) or self.context is ContextMode.FORK:
                raise PydanticCustomError("excluded", "a mission has one run at a time: overlap skip or queue, no fork")
            if self.conversation_id is not None:
                raise PydanticCustomError("excluded", "a mission has its own conversation")
        alone = self.context is not ContextMode.CONTINUE
        if self.overlap in (Overlap.QUEUE, Overlap.STEER) and alone:
            raise PydanticCustomError("excluded", "queue and steer need context continue: other runs share no thread")
        if self.overlap is Overlap.ALLOW and not alone:
            raise PydanticCustomError("excluded", "allow needs another context: a thread runs one session at a time")
        return self


class Schedule(Frozen):
    """One row of the table `schedules`. `session` is the template of each run, checked when the schedule was made."""

    tenant: str
    id: str
    rules: Stored[ScheduleRules]
    session: Stored[NewSession]
    prompt: str
    conversation_id: str  # the conversation of its address
    paused: bool = False
    pause_reason: str | None = None
    status: MissionStatus | None = None  # None: it is no mission
    reason: str | None = None  # why the mission ended
    summary: str | None = None
    failures: int = 0  # in a row
    version: int = 1
    created_by: str = ""
    created_at: datetime
    deleted_at: datetime | None = None

    def is_late(self, at: datetime, now: datetime) -> bool:
        """Whether the tick for this time was missed. Jitter does not count as a delay."""
        return now > at + timedelta(milliseconds=self.rules.jitter) + LATE

    def message_id(self, at: datetime) -> str:
        """The id of the message that a tick sends to a running session: equal in every repetition of the tick."""
        return derive_id(self.conversation_id, "tick", self.id, tick_key(at))


class Mission(Schedule):
    """A schedule with bounds: it stays working until it is cancelled, expired, stopped or out of budget."""

    @property
    def bounds(self) -> MissionRules:
        assert self.rules.mission is not None
        return self.rules.mission

    @property
    def paused_by_risk(self) -> bool:
        return self.paused and (self.pause_reason or "").startswith(RISK)

    def day_start(self, now: datetime) -> datetime:
        local = now.astimezone(ZoneInfo(self.rules.timezone))
        return local.replace(hour=0, minute=0, second=0, microsecond=0)

    def find_end(self, now: datetime, total: Spent, last_answer: str | None) -> tuple[MissionStatus, str] | None:
        """The status in which it is over, and why; None if it continues."""
        bounds = self.bounds
        if bounds.expires_at is not None and bounds.expires_at <= now:
            return MissionStatus.EXPIRED, "its time is over"
        if (kind := total.over(bounds.total)) is not None:
            return MissionStatus.OUT_OF_BUDGET, f"its budget of {kind} is used up"
        limit = bounds.stop_after_failures
        if limit is not None and total.failures >= limit:
            return MissionStatus.STOPPED, f"{format_count(total.failures, 'run')} failed"
        if bounds.ends_with(last_answer):
            return MissionStatus.STOPPED, "a run answered what ends it"
        return None

    def find_hold(self, now: datetime, today: Spent, total: Spent) -> Hold | None:
        """Why no run may begin now."""
        if self.status is not MissionStatus.WORKING:
            return Hold(kind=HoldKind.ENDED, text=f"the mission has ended: {self.reason}")
        if self.bounds.expires_at is not None and self.bounds.expires_at <= now:
            return Hold(kind=HoldKind.ENDED, text="the mission has ended: its time is over")
        if self.paused:
            return Hold(kind=HoldKind.PAUSED, text=f"the mission is paused: {self.pause_reason}")
        if (kind := today.over(self.bounds.per_day)) is not None:
            return Hold(kind=HoldKind.SPENT, text=f"the day's budget of {kind} is used up")
        if (kind := total.over(self.bounds.total)) is not None:  # while its last run is not over
            return Hold(kind=HoldKind.SPENT, text=f"its budget of {kind} is used up")
        return None

    def run_budget(self, today: Spent, total: Spent, conversation: Spent) -> NewBudget:
        """The total that the conversation may have used at the end of the next run, subagents included."""
        budgets = ((self.bounds.per_day, today), (self.bounds.total, total))
        money = [budget.cost_usd - spent.cost_usd for budget, spent in budgets if budget.cost_usd is not None]
        tokens = [budget.tokens - spent.tokens for budget, spent in budgets if budget.tokens is not None]
        return NewBudget(
            deadline=self.bounds.expires_at,
            max_cost_usd=conversation.cost_usd + min(money) if money else None,
            max_tokens=conversation.tokens + min(tokens) if tokens else None,
        )


class RunStatus(StrEnum):
    FIRED = "fired"  # it became a session
    STEERED = "steered"  # a running session was given its message
    SKIPPED = "skipped"
    FAILED = "failed"  # its message could not be accepted, or its check failed


class ScheduleRun(models.ScheduleRun):
    status: RunStatus


class TickInput(BaseModel):
    """Input of a Tick workflow. Temporal supplies the scheduled time, unless a caller triggered the tick."""

    tenant: str
    schedule_id: str
    at: datetime | None = None


class TickCall(BaseModel):
    tenant: str
    schedule_id: str
    at: datetime
    manual: bool = False


class TickOutcome(BaseModel):
    status: RunStatus | Literal["gone"]  # gone: the schedule was deleted
    reason: str = ""
    session_id: str | None = None


def time_problem(at: datetime) -> str | None:
    """Why a one-time schedule cannot use this time."""
    if at.replace(microsecond=0) <= datetime.now(UTC):  # Temporal's calendars have no fractions
        return "must be in the future"
    return f"must be before the year {LAST_YEAR}" if at.astimezone(UTC).year >= LAST_YEAR else None


def tick_key(at: datetime) -> str:
    """A scheduled time, as part of the key of its message."""
    return at.astimezone(UTC).isoformat()


def tick_text(prompt: str, output: str) -> str:
    """The message of a tick: the prompt and the output of the check. The output is marked as data, not as an
    instruction."""
    return f"{prompt}\n\n<check_output>\n{quote(output)}\n</check_output>" if output else prompt


# Cron expressions of five fields: checked here, computed by Temporal.


_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_PART = re.compile(r"(?:(\*)|([0-9A-Z]+)(?:-([0-9A-Z]+))?)(?:/([0-9]{1,2}))?")


class CronError(ValueError):
    """The expression is not valid; the message says what to change."""


@dataclass(frozen=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    first: int = 0  # the value of the first name

    def values(self, text: str) -> frozenset[int]:
        found: set[int] = set()
        for part in text.upper().split(","):
            match = _PART.fullmatch(part)
            if match is None or (match[4] and match[2] and not match[3]):
                raise CronError(f"{self.name}: use *, a value, a range a-b, a step */n or a-b/n, or a list of those")
            low, high = (
                (self.low, self.high) if match[1] else (self._value(match[2]), self._value(match[3] or match[2]))
            )
            step = int(match[4] or 1)
            if low > high or step == 0:
                raise CronError(f"{self.name}: a range runs from the lower value to the higher, a step is at least 1")
            found |= set(range(low, high + 1, step))
        return frozenset(found)

    def _value(self, text: str) -> int:
        if text in self.names:
            return self.names.index(text) + self.first
        if not text.isdecimal() or not self.low <= int(text) <= self.high:
            raise CronError(f"{self.name}: must be between {self.low} and {self.high}")
        return int(text)


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS, 1),
    _Field("day of week", 0, 7, _DAYS),
)


def check_cron(text: str) -> None:
    """Raise CronError if the text is not a cron expression of five fields."""
    given = _split(text)
    _, _, days, months, _ = [field.values(one) for field, one in zip(_FIELDS, given, strict=True)]
    # of a leap year; a day of the week, if one is given, makes it due too
    if given[4].startswith("*") and min(days) > max(monthrange(2000, month)[1] for month in months):
        raise CronError("day of month: these months have no such day")


def per_day(text: str) -> int:
    """The most often that it can come due in one day."""
    minutes, hours = (field.values(given) for field, given in zip(_FIELDS[:2], _split(text)[:2], strict=True))
    return len(minutes) * len(hours)


def expressions(text: str) -> list[str]:
    """The expressions for Temporal. By cron's rule a day matches if its day of the month or its day of the week does.
    Temporal requires both, so an expression that restricts both becomes two."""
    minute, hour, day, month, weekday = _split(text)
    if day.startswith("*") or weekday.startswith("*"):
        return [" ".join((minute, hour, day, month, weekday))]
    return [f"{minute} {hour} {day} {month} *", f"{minute} {hour} * {month} {weekday}"]


def _split(text: str) -> list[str]:
    if not text.isascii():  # the upper case of some other letters is ASCII
        raise CronError("only ASCII characters are allowed")
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise CronError("five fields are needed: minute, hour, day of month, month, day of week")
    return fields
