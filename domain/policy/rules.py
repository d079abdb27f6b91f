"""Permissions: ordered rules; the last one that matches decides, and without a match the thing is allowed."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from domain.policy.commands import ShellCommand, matches
from domain.policy.subjects import SubjectKind
from domain.policy.traits import BOUND_KINDS, DELEGATION, Question, ToolTraits


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


class StandingRule(Rule):
    """What a person has approved for a whole conversation.

    `external`: of a tool that a caller brought. It holds for these alone, because such a tool may have the name of one
    that a subagent really has.
    """

    external: bool = False


class RuleVerdict(NamedTuple):
    """The rules' decision on a call, with the rule that made it and the part of the call it is about."""

    action: Action
    rule: Rule | None = None
    subject: str = ""

    @property
    def because(self) -> str:
        """The reason, for people and models; empty where no rule decides."""
        if self.rule is None:
            return ""
        about = " ".join(self.subject.split())
        return f"{self.rule}" + (f", here {_short(about)!r}" if about and about != self.rule.pattern else "")


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


_STRICTNESS = (Action.ALLOW, Action.ASK, Action.DENY)


def decide(rules: list[Rule], tool: ToolTraits, subject: str = "", default: Action = Action.ALLOW) -> Action:
    """What one ordered list says about a tool used on something."""
    rule = _deciding(rules, tool.question(subject))
    return default if rule is None else rule.action


def _deciding(rules: list[Rule], question: Question) -> Rule | None:
    covering = [rule for rule in reversed(rules) if _covers(rule, question)]
    if not isinstance(question.subject, ShellCommand):
        return next((rule for rule in covering if matches(question.subject, rule.pattern)), None)
    # the stricter of what holds for the command as it is written and for what it really is, so that no way to spell a
    # command avoids a rule, and none reaches a rule that is less strict
    command = question.subject
    written = next((rule for rule in covering if command.is_written(rule.pattern)), None)
    meant = next((rule for rule in covering if _is_meant(rule, command)), None)
    found = [rule for rule in (written, meant) if rule is not None]
    return max(found, key=lambda rule: _STRICTNESS.index(rule.action), default=None)


def _is_meant(rule: Rule, command: ShellCommand) -> bool:
    return command.is_written(rule.pattern) if rule.action is Action.ALLOW else command.is_meant(rule.pattern)


def verdict(layers: list[list[Rule]], tool: ToolTraits, subjects: Sequence[str] = ("",)) -> RuleVerdict:
    """Agent, task and parents each have their own ordered rules; no layer can loosen another, nor one subject."""
    found = [
        RuleVerdict(rule.action, rule, question.subject)
        for rules in layers
        for question in tool.questions(subjects)
        if (rule := _deciding(rules, question)) is not None
    ]
    return max(found, key=lambda one: _STRICTNESS.index(one.action), default=RuleVerdict(Action.ALLOW))


def still_asks(
    layers: list[list[Rule]], standing: list[Rule], tool: ToolTraits, subjects: Sequence[str] = ("",)
) -> bool:
    """Whether a person must be asked about a call although some calls were approved for the whole conversation."""
    asked = [
        question
        for rules in layers
        for question in tool.questions(subjects)
        if (rule := _deciding(rules, question)) is not None and rule.action is Action.ASK
    ]
    return not all(_deciding(standing, question) for question in asked)


def literal(subject: str) -> str:
    """A pattern that matches a subject and no longer one: `*` in it is not read as a wildcard."""
    return "".join("?" if letter in "*?[" else letter for letter in subject) or "*"


def host_permitted(layers: list[list[Rule]], host: str, tools: Iterable[ToolTraits]) -> bool:
    """Whether a command may reach a host: boundaries, and rules that name a tool that is used on hosts, must allow it
    there without asking. What is allowed to one of these tools loosens nothing that is denied to another.

    A rule for `*` alone says which tools there are, and one that allows commands has decided that already.
    """
    reaching = [tool.question(host) for tool in tools if tool.subject and tool.subject.kind is SubjectKind.HOST]
    questions = reaching or [Question((), (BOUND_KINDS[SubjectKind.HOST],), host)]
    naming = [[rule for rule in rules if rule.permission != "*"] for rules in layers]
    deciding = (_deciding(rules, question) for rules in naming for question in questions)
    return all(rule is None or rule.action is Action.ALLOW for rule in deciding)


def about(layers: list[list[Rule]], tool: ToolTraits) -> list[list[Rule]]:
    """The rules among these that can decide on a tool."""
    questions = list(tool.questions([""]))
    kept = [[rule for rule in rules if any(_covers(rule, question) for question in questions)] for rules in layers]
    return [rules for rules in kept if rules]


def possible(rules: list[Rule], tool: ToolTraits, default: Action = Action.ALLOW) -> bool:
    """Whether there may be anything that the tool could be used on; if not, it is not even offered."""
    found = default is not Action.DENY
    offer = tool.offer()
    for rule in rules:
        if _covers(rule, offer):
            found = rule.action is not Action.DENY or (found and rule.pattern != "*")
    return found and _unnamed_denied(rules, tool) is None


def barring(layers: list[list[Rule]], tool: ToolTraits) -> RuleVerdict | None:
    """The rule because of which a tool is not even offered."""
    offer = tool.offer()
    for rules in layers:
        if denied := _unnamed_denied(rules, tool):
            return denied
        if not possible(rules, tool):
            everything = (rule for rule in reversed(rules) if _covers(rule, offer) and rule.pattern == "*")
            return RuleVerdict(Action.DENY, next(everything))
    return None


def _unnamed_denied(rules: list[Rule], tool: ToolTraits) -> RuleVerdict | None:
    for question in tool.unnamed():
        rule = _deciding(rules, question)
        if rule is not None and rule.action is Action.DENY:
            return RuleVerdict(Action.DENY, rule, question.subject)
    return None


def names_a_tool(permission: str, tools: Collection[str]) -> bool:
    """Whether a rule for this could ever apply."""
    return any(matches(name, permission) for name in (*tools, DELEGATION))


def _covers(rule: Rule, question: Question) -> bool:
    return rule.permission in question.groups or any(matches(name, rule.permission) for name in question.names)


def tools_of(
    known: Mapping[str, ToolTraits],
    listed: list[str],
    rules: list[Rule],
    *,
    delegates: bool,
    parent_tools: list[str] | None = None,
) -> list[str]:
    """The tools a session really has: what it declares, less what is denied and what its parent does not have."""
    names = [*listed, *(name for name, tool in known.items() if delegates and tool.delegates)]
    found = []
    for name in names:
        tool = known.get(name) or ToolTraits(name=name)
        child = parent_tools is not None
        default = Action.DENY if child and tool.withheld_from_subagents else Action.ALLOW
        if (parent_tools is None or name in parent_tools) and possible(rules, tool, default):
            found.append(name)
    return found
