"""Permissions: what a call is about (commands, subjects, traits of its tool), and the ordered rules that decide on
it. The last rule that matches decides; without a match the use is allowed."""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple

from httpx2 import URL, InvalidURL
from pydantic import Field

from domain.errors import ForModel
from domain.frozen import Closed, Frozen

# Shell commands as permission rules see them: one command, however it is spelled.
#
# This is a guard rail, not a shell parser: a command can be computed while it runs. To make sure that something never
# happens, use a rule that denies everything and allows only what is needed.


_BETWEEN = re.compile(r"[;&|\n(){}`]|\$\(")
_NOTHING = re.compile(r"\\\n|[\"'\\]")  # what the shell removes before it runs a command
_BLANK = re.compile(r"\s+|\$\{IFS\}|\$IFS\b")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_REDIRECTION = re.compile(r"\d*[<>]+")
# these run the command that follows them, possibly after their own options
_RUNNERS = frozenset(
    (
        *("!", "do", "elif", "else", "if", "then", "until", "while", "builtin", "command", "eval", "exec"),
        *("chroot", "doas", "env", "ionice", "nice", "nohup", "script", "setsid", "stdbuf", "sudo", "time"),
        *("timeout", "watch", "xargs", "sh", "bash", "dash", "zsh", "ksh", "busybox"),
    )
)
_MOST_SPELLINGS = 40


class ShellCommand(str):
    """One command of a call, as it was written."""

    __slots__ = ()

    def is_written(self, pattern: str) -> bool:
        """Whether a pattern matches what is written, quotes and blanks aside: `git *` does not match
        `LD_PRELOAD=x git log` nor `./git log`."""
        return _any_match((self, fold_command(self)), (pattern, fold_command(pattern)))

    def is_meant(self, pattern: str) -> bool:
        """Whether a pattern matches any spelling of the command: `rm *` matches `A=b /bin/rm x`."""
        return _any_match((self, *command_spellings(self)), _patterns(pattern))


def commands_in(command: str) -> list[str]:
    """The whole command, and each command in it: rules must agree to all of them.

    Quotes do not protect from cutting: a harmless text may be taken for a command, but no command can hide in a text.
    """
    whole = _BLANK.sub(lambda found: found[0] if found[0].isspace() else " ", command.replace("\\\n", "")).strip()
    parts = [part.strip() for part in _BETWEEN.split(whole)]
    return [ShellCommand(text) for text in dict.fromkeys([command.strip(), whole, *(part for part in parts if part)])]


def fold_command(text: str) -> str:
    """The command without quotes, escapes and superfluous blanks."""
    return _BLANK.sub(" ", _NOTHING.sub("", text)).strip()


@lru_cache(maxsize=4_096)
def command_spellings(command: str) -> tuple[str, ...]:
    """The other spellings by which rules know a command: without its assignments, its redirections and the path of its
    program, and the command that a runner such as `sudo` starts."""
    found = [fold_command(command)]
    waiting = [found[0].split(" ")]
    while waiting and len(found) < _MOST_SPELLINGS:
        tokens = _bare(waiting.pop())
        if not tokens:
            continue
        program = tokens[0].rpartition("/")[2]
        found.append(" ".join([program, *tokens[1:]]))
        if program in _RUNNERS:  # we cannot know which tokens are its options, so any may begin the command
            waiting += [tokens[place:] for place in range(1, min(len(tokens), 8))]
    return tuple(dict.fromkeys(found))


def _bare(tokens: list[str]) -> list[str]:
    while tokens:
        redirection = _REDIRECTION.match(tokens[0])
        if redirection is not None:
            tokens = tokens[2 if redirection.end() == len(tokens[0]) else 1 :]  # `> file`: two tokens
        elif _ASSIGNMENT.match(tokens[0]):
            tokens = tokens[1:]
        else:
            break
    return tokens


@lru_cache(maxsize=4_096)
def _patterns(pattern: str) -> tuple[str, ...]:
    """The forms of a pattern to match with: `/usr/bin/rm *` matches `rm *` too, but `./*` does not match everything."""
    program, blank, rest = fold_command(pattern).partition(" ")
    name = program.rpartition("/")[2]
    bare = (f"{name}{blank}{rest}",) if name and not set("*?") & set(name) else ()
    return (pattern, fold_command(pattern), *bare)


def _any_match(texts: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    return any(matches_command(text, pattern) for text in texts for pattern in patterns)


def matches_command(text: str, pattern: str) -> bool:
    return fnmatchcase(text, pattern.replace("[", "[[]"))  # file names have brackets; only * and ? are special


# Subjects: the targets of a tool call, read from its arguments, as permission rules match them.


MOUNT = "/workspace"  # where commands see the workspace; accepted from the model as a prefix
MAX_DEPTH = 40


class SubjectKind(StrEnum):
    NAME = "name"  # the text itself, as of an agent
    COMMAND = "command"
    PATH = "path"
    HOST = "host"


class Subject(Frozen):
    """Which arguments rules match on, and how to read them. It is data and not code, so that any process can judge a
    call by the same rules after a person has changed its arguments."""

    kind: SubjectKind = SubjectKind.NAME
    fields: tuple[str, ...] = ()  # texts or lists of texts; for NAME and COMMAND the first that is given counts
    fixed: str | None = None  # whatever the arguments: the host of a tool that has only one

    def value(self, arguments: Mapping[str, Any]) -> Any:
        return next((value for name in self.fields if (value := arguments.get(name))), "")

    def of(self, arguments: Mapping[str, Any]) -> list[str]:
        """All subjects of a call. Each of them must be allowed."""
        if self.fixed is not None:
            return [self.fixed]
        given = [value for name in self.fields if (value := arguments.get(name))]
        if self.kind in (SubjectKind.NAME, SubjectKind.COMMAND):
            given = given[:1]
        values = [one for value in given for one in (value if isinstance(value, list | tuple) else [value])]
        return [subject for value in values for subject in self._read(value)] or [""]

    def _read(self, value: Any) -> list[str]:
        if not isinstance(value, str):
            return [""]
        if self.kind is SubjectKind.COMMAND:
            return commands_in(value)
        if self.kind is SubjectKind.PATH:
            return [canonical_path(value)]
        return [host_of(value) if self.kind is SubjectKind.HOST else value]


def subjects_of(subject: Subject | None, arguments: Mapping[str, Any]) -> list[str]:
    return subject.of(arguments) if subject is not None else [""]


def host_of(url: str) -> str:
    """The canonical name of a URL's host or of a bare host, by which rules know it; empty if it is neither."""
    try:
        return (URL(url if "//" in url else f"//{url}").host or "").lower().rstrip(".")
    except (InvalidURL, ValueError):
        return ""


class PathError(ForModel):
    """A path cannot be used."""


def path_parts(path: str) -> tuple[str, ...]:
    """The folders and the name on the way from the workspace to `path`; empty for the workspace itself."""
    if "\0" in path:
        raise PathError("The path contains a NUL character.")
    if path == MOUNT or path.startswith(MOUNT + "/"):
        path = path[len(MOUNT) :].lstrip("/") or "."
    if path.startswith("/"):
        raise PathError(f"{path!r} is absolute. Give a path relative to the workspace.")
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    if ".." in names:
        raise PathError(f"{path!r} contains '..'. Only paths inside the workspace can be used.")
    if len(names) > MAX_DEPTH:
        raise PathError(f"The path has more than {MAX_DEPTH} folders.")
    for name in names:
        try:
            size = len(os.fsencode(name))
        except UnicodeEncodeError:
            raise PathError("The path contains characters that no file name can have.") from None
        if size > 255:
            raise PathError("A name in the path is longer than 255 bytes.")
    return names


def canonical_path(path: str) -> str:
    """The canonical form of a path, by which rules know it; a path that cannot be used stays as it is."""
    try:
        return "/".join(path_parts(path)) or "."
    except PathError:
        return path


# Traits: facts that a tool declares about itself, on which rules, boundaries, limits and the session's loop depend.


DELEGATION = "delegation"  # the name under which rules know every tool that starts subagents

# Groups of tools that only a task's boundary names. No tool has a dot in its name, and groups are matched exactly: `*`
# in a rule means all tools and must not decide about paths or hosts that it does not name.
TALKING_TOOLS = "boundary.talking"
COMMANDS = "boundary.commands"
BOUND_KINDS = {SubjectKind.PATH: "boundary.paths", SubjectKind.HOST: "boundary.hosts"}


class Question(NamedTuple):
    """A question to the rules about a call: the names by which they know it, and what it is used on."""

    names: tuple[str, ...]  # matched with * and ?
    groups: tuple[str, ...]  # matched exactly
    subject: str = ""
    external: bool = False  # about a tool that a caller brought


@dataclass(frozen=True, kw_only=True)
class ToolTraits:
    name: str
    subject: Subject | None = None  # the argument that rules match on: a command, a path, a host, an agent
    # PATH: files of the workspace, HOST: the network. None: undeclared, which counts as both.
    touches: tuple[SubjectKind, ...] | None = None
    talks: bool = False  # only speaks to people or keeps the session's own notes, and touches nothing
    asks: bool = False  # puts a question to people
    plans: bool = False  # submits the session's plan
    has_own_event: bool = False  # its call is shown by its own event
    polls: bool = False  # repeating it with the same result does not count as a loop
    delegates: bool = False  # works with subagents: only an agent that has some is offered it
    starts: bool = False  # starts a subagent
    addresses: bool = False  # works with subagents that are tools of a prompt: only a prompt with some is offered it
    external: bool = False  # the caller brought it and answers its calls, whatever its name
    approval: bool = False  # people approve its calls, unless a rule says otherwise

    @property
    def withheld_from_subagents(self) -> bool:
        """Whether a subagent has it only if a rule of its own definition says so."""
        return self.asks or self.plans or self.delegates

    def question(self, subject: str = "") -> Question:
        """The question to the rules about one subject of a call."""
        names = (self.name, DELEGATION) if self.starts else (self.name,)
        return Question(names, self._groups, subject, self.external)

    def offer(self) -> Question:
        """The question to the rules before the tool is offered. Rules about delegation cover every tool that
        delegates."""
        names = (self.name, DELEGATION) if self.delegates else (self.name,)
        return Question(names, self._groups, external=self.external)

    def questions(self, subjects: Sequence[str]) -> Iterator[Question]:
        yield from map(self.question, subjects)
        yield from self.ask_unnamed()

    def ask_unnamed(self) -> Iterator[Question]:
        """What a call of the tool may touch without naming it in its arguments. A boundary refuses that."""
        if self.talks or self.delegates:
            return
        own = self.subject.kind if self.subject else None
        touched = BOUND_KINDS if self.touches is None else self.touches
        groups = [group for kind, group in BOUND_KINDS.items() if kind in touched and kind is not own]
        if groups and own is SubjectKind.COMMAND:
            # No rule can see what a command will touch. A caller who lists the tool by name accepts that.
            yield Question((), (COMMANDS,), self.name)
        else:
            yield from (Question((), (group,)) for group in groups)

    @property
    def _groups(self) -> tuple[str, ...]:
        bound = BOUND_KINDS.get(self.subject.kind) if self.subject else None
        return tuple(group for group in (bound, TALKING_TOOLS if self.talks else None) if group)


class Action(StrEnum):
    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"


class Rule(Closed):
    """`permission` names a tool or `delegation`; `pattern` must match the whole subject. Both may contain * and ?."""

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


def decide(rules: list[Rule], tool: ToolTraits, subject: str = "") -> Action:
    """The decision of one ordered list of rules about a tool used on something."""
    rule = _deciding(rules, tool.question(subject))
    return Action.ALLOW if rule is None else rule.action


def _deciding(rules: list[Rule], question: Question) -> Rule | None:
    covering = [rule for rule in reversed(rules) if _covers(rule, question)]
    if not isinstance(question.subject, ShellCommand):
        return next((rule for rule in covering if matches_command(question.subject, rule.pattern)), None)
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
    if not found and tool.approval:
        return RuleVerdict(Action.ASK, Rule(permission=tool.name, action=Action.ASK))
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
    if tool.approval and verdict(layers, tool, subjects).action is Action.ASK:  # though no rule may say so
        asked += [tool.question(subject) for subject in subjects]
    return not all(_deciding(standing, question) for question in asked)


def literal_pattern(subject: str) -> str:
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


def rules_about(layers: list[list[Rule]], tool: ToolTraits) -> list[list[Rule]]:
    """The rules among these that can decide on a tool."""
    questions = list(tool.questions([""]))
    kept = [[rule for rule in rules if any(_covers(rule, question) for question in questions)] for rules in layers]
    return [rules for rules in kept if rules]


def is_possible(rules: list[Rule], tool: ToolTraits, default: Action = Action.ALLOW) -> bool:
    """Whether the tool could be used on anything at all; if not, it is not offered to the model."""
    found = default is not Action.DENY
    offer = tool.offer()
    for rule in rules:
        if _covers(rule, offer):
            found = rule.action is not Action.DENY or (found and rule.pattern != "*")
    return found and _deny_unnamed(rules, tool) is None


def find_barring_rule(layers: list[list[Rule]], tool: ToolTraits) -> RuleVerdict | None:
    """The rule that keeps a tool from being offered."""
    offer = tool.offer()
    for rules in layers:
        if denied := _deny_unnamed(rules, tool):
            return denied
        if not is_possible(rules, tool):
            everything = (rule for rule in reversed(rules) if _covers(rule, offer) and rule.pattern == "*")
            return RuleVerdict(Action.DENY, next(everything))
    return None


def _deny_unnamed(rules: list[Rule], tool: ToolTraits) -> RuleVerdict | None:
    for question in tool.ask_unnamed():
        rule = _deciding(rules, question)
        if rule is not None and rule.action is Action.DENY:
            return RuleVerdict(Action.DENY, rule, question.subject)
    return None


def names_a_tool(permission: str, tools: Collection[str]) -> bool:
    """Whether a rule for this could ever match."""
    return any(matches_command(name, permission) for name in (*tools, DELEGATION))


def _covers(rule: Rule, question: Question) -> bool:
    if question.external and isinstance(rule, PlatformToolRule):
        return False
    return rule.permission in question.groups or any(matches_command(name, rule.permission) for name in question.names)


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
        if is_possible(rules, tool, default):
            found.append(name)
    return found


# Approval rules: a person who changes the arguments of a call must stay within the rules that bind the call.


class ApprovalRules(Frozen):
    """The rules of one call. They are stored with the request, because they come from several agents and from the
    task."""

    tool: ToolTraits
    layers: list[list[Rule]]

    def verdict(self, arguments: Mapping[str, Any]) -> RuleVerdict:
        return verdict(self.layers, self.tool, subjects_of(self.tool.subject, arguments))
