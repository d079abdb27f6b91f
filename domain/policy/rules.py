"""Permissions: ordered rules. The last rule that matches decides; without a match the use is allowed."""

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
    """`permission` names a tool or `delegation`; `pattern` must match the whole subject. Both may contain * and ?."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    permission: str = Field(min_length=1, max_length=64)
    pattern: str = Field(default="*", min_length=1, max_length=1_000)
    action: Action

    def __str__(self) -> str:
        return f'{self.action} {self.permission} "{_short(self.pattern)}"'


class PlatformToolRule(Rule):
    """A rule of an agent's author that names a tool of the platform: it does not cover a tool that a caller brought
    under the same name, whose calls never reach the platform's."""


class StandingRule(Rule):
    """An approval that a person gave for a whole conversation.

    `external`: it is for tools that a caller brought, and for these alone, because such a tool may have the same name
    as a real tool of a subagent.
    """

    external: bool = False


class RuleVerdict(NamedTuple):
    """The rules' decision on a call, with the rule that decided and the part of the call that it is about."""

    action: Action
    rule: Rule | None = None
    subject: str = ""

    @property
    def because(self) -> str:
        """The reason, for people and models; empty if no rule decided."""
        if self.rule is None:
            return ""
        about = " ".join(self.subject.split())
        return f"{self.rule}" + (f", here {_short(about)!r}" if about and about != self.rule.pattern else "")


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


_STRICTNESS = (Action.ALLOW, Action.ASK, Action.DENY)


def decide(rules: list[Rule], tool: ToolTraits, subject: str = "", default: Action = Action.ALLOW) -> Action:
    """The decision of one ordered list of rules about a tool used on something."""
    rule = _deciding(rules, tool.question(subject))
    return default if rule is None else rule.action


def _deciding(rules: list[Rule], question: Question) -> Rule | None:
    covering = [rule for rule in reversed(rules) if _covers(rule, question)]
    if not isinstance(question.subject, ShellCommand):
        return next((rule for rule in covering if matches(question.subject, rule.pattern)), None)
    # Take the stricter decision of the command as written and of the command it really is, so that no spelling avoids a
    # rule or reaches a less strict one.
    command = question.subject
    written = next((rule for rule in covering if command.is_written(rule.pattern)), None)
    meant = next((rule for rule in covering if _is_meant(rule, command)), None)
    found = [rule for rule in (written, meant) if rule is not None]
    return max(found, key=lambda rule: _STRICTNESS.index(rule.action), default=None)


def _is_meant(rule: Rule, command: ShellCommand) -> bool:
    return command.is_written(rule.pattern) if rule.action is Action.ALLOW else command.is_meant(rule.pattern)


def verdict(layers: list[list[Rule]], tool: ToolTraits, subjects: Sequence[str] = ("",)) -> RuleVerdict:
    """Decide by the layers of agent, task and parents. No layer can loosen another, and every subject must be
    allowed."""
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
    """Whether a person must be asked about a call, given the calls already approved for the whole conversation."""
    asked = [
        question
        for rules in layers
        for question in tool.questions(subjects)
        if (rule := _deciding(rules, question)) is not None and rule.action is Action.ASK
    ]
    return not all(_deciding(standing, question) for question in asked)


def literal(subject: str) -> str:
    """A pattern that matches exactly this subject: `*` in it does not act as a wildcard."""
    return "".join("?" if letter in "*?[" else letter for letter in subject) or "*"


def host_permitted(layers: list[list[Rule]], host: str, tools: Iterable[ToolTraits]) -> bool:
    """Whether a command may reach a host: boundaries, and rules about tools that reach hosts, must allow it there
    without asking. A rule that allows one of these tools does not loosen a rule that denies another.

    Rules for `*` alone are ignored: they decide which tools a session has, and that it has commands is decided already.
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
    """Whether the tool could be used on anything at all; if not, it is not offered to the model."""
    found = default is not Action.DENY
    offer = tool.offer()
    for rule in rules:
        if _covers(rule, offer):
            found = rule.action is not Action.DENY or (found and rule.pattern != "*")
    return found and _unnamed_denied(rules, tool) is None


def barring(layers: list[list[Rule]], tool: ToolTraits) -> RuleVerdict | None:
    """The rule that keeps a tool from being offered."""
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
    """Whether a rule for this could ever match."""
    return any(matches(name, permission) for name in (*tools, DELEGATION))


def _covers(rule: Rule, question: Question) -> bool:
    if question.external and isinstance(rule, PlatformToolRule):
        return False
    return rule.permission in question.groups or any(matches(name, rule.permission) for name in question.names)


def tools_of(
    known: Mapping[str, ToolTraits],
    listed: list[str],
    rules: list[Rule],
    *,
    delegates: bool,
    subagent: bool = False,
) -> list[str]:
    """The tools that an agent declares, minus those that its rules deny. A subagent has the withheld ones only if its
    rules allow them."""
    names = [*listed, *(name for name, tool in known.items() if delegates and tool.delegates)]
    found = []
    for name in names:
        tool = known.get(name) or ToolTraits(name=name)
        default = Action.DENY if subagent and tool.withheld_from_subagents else Action.ALLOW
        if possible(rules, tool, default):
            found.append(name)
    return found
