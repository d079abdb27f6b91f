"""Missions: agents that watch over something. They run again and again and do not have a single result."""

from enum import StrEnum
from typing import Annotated, Any, Self

from errand import models
from pydantic import AfterValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from domain.amounts import format_count
from domain.frozen import Frozen
from domain.patterns import accept_pattern, matches
from domain.policy.rules import Action, Rule
from domain.policy.rules import matches_command as matches_pattern
from domain.task import GivenTime, Strict

# The bounds of a mission: budgets, conditions that end it, and risks that pause it. `schedules` has the mission itself.


# A rule of this name records the mission that a session belongs to. Subagents inherit their parent's rules, so they
# carry it too. No tool has a dot in its name, so the rule never decides about a tool.
MARK = "mission.id"
RISK = "risk: "  # prefix of the reason if a risk paused the mission; an approval ends the pause


AnswerPattern = Annotated[str, StringConstraints(max_length=1_000), AfterValidator(accept_pattern)]


class MissionStatus(StrEnum):
    """States of a mission. One that is paused, or waits for an answer, still counts as working."""

    WORKING = "working"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    OUT_OF_BUDGET = "out_of_budget"
    STOPPED = "stopped"  # by one of its own conditions


class MissionBudget(Strict):
    """The most that its runs, with their subagents, may use together. None: no such limit."""

    cost_usd: float | None = Field(default=None, gt=0, strict=False)
    tokens: int | None = Field(default=None, ge=1)
    runs: int | None = Field(default=None, ge=1)


class RiskTrigger(Strict):
    """A call that a person has to approve: of a tool with certain arguments, after a number of calls or an amount of
    money in a day."""

    tool: Annotated[str, StringConstraints(min_length=1, max_length=64)] = Field(
        default="*", description="its name; * and ? match anything"
    )
    argument: Annotated[str, StringConstraints(min_length=1, max_length=1_000)] = Field(
        default="*", description="one of the texts among its arguments, as a whole; * and ? match anything"
    )
    after_calls: int = Field(default=0, ge=0, description="so many such calls a day need no approval")
    after_usd: float = Field(default=0, ge=0, strict=False, description="only after this much was spent in the day")

    @property
    def text(self) -> str:
        """The risk as people read it: `bash *push*, after 2 calls a day`."""
        call = self.tool if self.argument == "*" else f"{self.tool} {self.argument}"
        calls = f", after {format_count(self.after_calls, 'call')} a day" if self.after_calls else ""
        return f"{call}{calls}" + (f", after {self.after_usd:g} USD a day" if self.after_usd else "")

    def concerns(self, tool: str, arguments: Any) -> bool:
        texts = list(_texts(arguments)) or [""]
        return matches_pattern(tool, self.tool) and any(matches_pattern(text, self.argument) for text in texts)


class MissionRules(Strict):
    """The bounds that make a schedule a mission."""

    per_day: MissionBudget = MissionBudget()
    total: MissionBudget = MissionBudget()
    expires_at: GivenTime | None = None
    stop_after_failures: int | None = Field(default=None, ge=1, description="in all")
    stop_when_answer: AnswerPattern | None = Field(
        default=None, description="a regular expression of RE2: a run whose answer has it is the last"
    )
    risks: list[RiskTrigger] = Field(default_factory=list, max_length=50)

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        limits = [*self.total.model_dump().values(), self.expires_at]
        if all(limit is None for limit in limits):
            raise PydanticCustomError("needs", "a mission needs a total budget or a time at which it expires")
        return self

    def ends_with(self, answer: str | None) -> bool:
        return self.stop_when_answer is not None and answer is not None and matches(self.stop_when_answer, answer)


class Spent(models.Spent):
    def over(self, budget: MissionBudget) -> str | None:
        """The budget that is used up."""
        for name, text in (("cost_usd", "money"), ("tokens", "tokens"), ("runs", "runs")):
            limit = getattr(budget, name)
            if limit is not None and getattr(self, name) >= limit:
                return text
        return None


class HoldKind(StrEnum):
    """Why a mission does not run now; also the type of the problem with which its events are refused."""

    ENDED = "mission-ended"
    PAUSED = "mission-paused"
    SPENT = "mission-budget-spent"


class Hold(Frozen):
    kind: HoldKind
    text: str


def mission_mark(mission_id: str) -> list[Rule]:
    return [Rule(permission=MARK, pattern=mission_id, action=Action.ASK)]


def mission_of(layers: list[list[Rule]]) -> str | None:
    """The mission that a session with these rules belongs to."""
    return next((rule.pattern for rules in layers for rule in rules if rule.permission == MARK), None)


def _texts(value: Any) -> "list[str]":
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for one in value.values() for text in _texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return [] if value is None else [str(value)]
