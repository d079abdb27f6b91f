"""Permissions: ordered rules; the last one that matches decides, and without a match the thing is allowed."""

from collections.abc import Collection, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field


class Action(StrEnum):
    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"


class Rule(BaseModel):
    """`permission` names a tool, or `delegation`; `pattern` what it is used on, as a whole. Both may hold * and ?."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    permission: str = Field(min_length=1, max_length=64)
    pattern: str = Field(default="*", min_length=1, max_length=1_000)
    action: Action

    def __str__(self) -> str:
        return f'{self.action} {self.permission} "{_short(self.pattern)}"'


class RuleVerdict(NamedTuple):
    """What the rules say of a call; where one of them decides, which, and about which part of the call."""

    action: Action
    rule: Rule | None = None
    subject: str = ""

    @property
    def because(self) -> str:
        """Words for people and models; nothing where no rule decides."""
        if self.rule is None:
            return ""
        about = " ".join(self.subject.split())
        return f"{self.rule}" + (f", here {_short(about)!r}" if about and about != self.rule.pattern else "")


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


DELEGATION = "delegation"
DELEGATION_TOOLS = (
    "delegate",
    "task",
    "async_delegate",
    "async_task",
    "async_task_result",
    "gather",
    "steer_subagent",
    "cancel_subagent",
    "list_subagents",
)
STARTERS = ("delegate", "task", "async_delegate", "async_task")
# what a subagent has only by an explicit rule of its own definition, as it has delegation
WITHHELD_FROM_SUBAGENTS = ("ask_user", "update_plan")
TALKING = ("ask_user", "update_plan", "report_progress")  # these touch nothing

_STRICTNESS = (Action.ALLOW, Action.ASK, Action.DENY)


def decide(rules: list[Rule], tool: str, subject: str = "", default: Action = Action.ALLOW) -> Action:
    """What one ordered list says of a tool used on something; a tool that starts subagents is `delegation` too."""
    rule = _deciding(rules, tool, subject)
    return default if rule is None else rule.action


def _deciding(rules: list[Rule], tool: str, subject: str) -> Rule | None:
    found = (rule for rule in reversed(rules) if _names(rule, _called(tool)) and _matches(subject, rule.pattern))
    return next(found, None)


def _called(tool: str) -> tuple[str, ...]:
    return (tool, DELEGATION) if tool in STARTERS else (tool,)


def verdict(layers: list[list[Rule]], tool: str, subjects: Sequence[str] = ("",)) -> RuleVerdict:
    """Agent, task and parents each have their own ordered rules; no layer can loosen another, nor one subject."""
    found = [
        RuleVerdict(rule.action, rule, subject)
        for rules in layers
        for subject in subjects
        if (rule := _deciding(rules, tool, subject)) is not None
    ]
    return max(found, key=lambda one: _STRICTNESS.index(one.action), default=RuleVerdict(Action.ALLOW))


def strictest(layers: list[list[Rule]], tool: str, subjects: Sequence[str] = ("",)) -> Action:
    return verdict(layers, tool, subjects).action


def about(layers: list[list[Rule]], tool: str) -> list[list[Rule]]:
    """The rules among these that can decide on a tool."""
    kept = [[rule for rule in rules if _names(rule, _called(tool))] for rules in layers]
    return [rules for rules in kept if rules]


def possible(rules: list[Rule], tool: str, default: Action = Action.ALLOW) -> bool:
    """Whether there may be anything that the tool could be used on; if not, it is not even offered."""
    found = default is not Action.DENY
    for rule in rules:
        if _names(rule, _offered_as(tool)):
            found = rule.action is not Action.DENY or (found and rule.pattern != "*")
    return found


def barring(layers: list[list[Rule]], tool: str) -> Rule | None:
    """The rule because of which a tool is not even offered."""
    for rules in layers:
        if not possible(rules, tool):
            return next(rule for rule in reversed(rules) if _names(rule, _offered_as(tool)) and rule.pattern == "*")
    return None


def _offered_as(tool: str) -> tuple[str, ...]:
    return (tool, DELEGATION) if tool in DELEGATION_TOOLS else (tool,)


def names_a_tool(permission: str, tools: Collection[str]) -> bool:
    """Whether a rule for this could ever apply."""
    return any(_matches(name, permission) for name in (*tools, DELEGATION))


def _names(rule: Rule, names: tuple[str, ...]) -> bool:
    return any(_matches(name, rule.permission) for name in names)


def _matches(text: str, pattern: str) -> bool:
    return fnmatchcase(text, pattern.replace("[", "[[]"))  # file names have brackets; only * and ? are special


def tools_of(
    declared: list[str], rules: list[Rule], *, delegates: bool, parent_tools: list[str] | None = None
) -> list[str]:
    """The tools a session really has: what it declares, less what is denied and what its parent does not have."""
    tools = [*declared, *(DELEGATION_TOOLS if delegates else ())]
    if parent_tools is None:
        return [tool for tool in tools if possible(rules, tool)]
    withheld = (*WITHHELD_FROM_SUBAGENTS, *DELEGATION_TOOLS)
    return [
        tool
        for tool in tools
        if tool in parent_tools and possible(rules, tool, Action.DENY if tool in withheld else Action.ALLOW)
    ]
