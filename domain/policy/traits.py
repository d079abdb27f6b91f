"""Traits: what a tool declares about itself, as far as rules, boundaries, limits and the loop depend on it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from domain.policy.subjects import Subject, SubjectKind

DELEGATION = "delegation"  # the name under which rules know every tool that starts subagents

# Groups of tools that only a task's boundary names. No tool has a dot in its name, and a group is matched exactly: `*`
# in a rule means all tools, and must not decide about what a tool touches without naming it.
TALKING_TOOLS = "boundary.talking"
COMMANDS = "boundary.commands"
BOUND_KINDS = {SubjectKind.PATH: "boundary.paths", SubjectKind.HOST: "boundary.hosts"}


class Question(NamedTuple):
    """What rules are asked about a call: the names it has for them, and what it is used on."""

    names: tuple[str, ...]  # matched with * and ?
    groups: tuple[str, ...]  # matched exactly
    subject: str = ""


@dataclass(frozen=True, kw_only=True)
class ToolTraits:
    name: str
    subject: Subject | None = None  # what permission rules match on: a command, a path, a host, an agent
    # PATH: files of the workspace, HOST: the network. None says nothing, and counts as both.
    touches: tuple[SubjectKind, ...] | None = None
    talks: bool = False  # only speaks to people or keeps the session's own notes, and touches nothing
    asks: bool = False  # puts a question to people
    plans: bool = False  # submits the session's plan
    has_own_event: bool = False  # its call is shown by an event of its own
    polls: bool = False  # the same call with the same result is no sign of a loop
    delegates: bool = False  # works with subagents: only an agent that has some is offered it
    starts: bool = False  # starts a subagent
    external: bool = False  # the caller brought it and answers its calls, whatever its name

    @property
    def withheld_from_subagents(self) -> bool:
        """A subagent has it only by an explicit rule of its own definition."""
        return self.asks or self.plans or self.delegates

    def question(self, subject: str = "") -> Question:
        """What rules are asked about one subject of a call."""
        names = (self.name, DELEGATION) if self.starts else (self.name,)
        return Question(names, self._groups, subject)

    def offer(self) -> Question:
        """What rules are asked before the tool is offered; those about delegation cover every tool that delegates."""
        return Question((self.name, DELEGATION) if self.delegates else (self.name,), self._groups)

    def questions(self, subjects: Sequence[str]) -> Iterator[Question]:
        yield from map(self.question, subjects)
        yield from self.unnamed()

    def unnamed(self) -> Iterator[Question]:
        """What any call of the tool may touch although its arguments do not name it; a boundary refuses that."""
        if self.talks or self.delegates:
            return
        own = self.subject.kind if self.subject else None
        touched = BOUND_KINDS if self.touches is None else self.touches
        groups = [group for kind, group in BOUND_KINDS.items() if kind in touched and kind is not own]
        if groups and own is SubjectKind.COMMAND:
            # no rule can see what a command will touch; a caller who lists the tool by name accepts that
            yield Question((), (COMMANDS,), self.name)
        else:
            yield from (Question((), (group,)) for group in groups)

    @property
    def _groups(self) -> tuple[str, ...]:
        bound = BOUND_KINDS.get(self.subject.kind) if self.subject else None
        return tuple(group for group in (bound, TALKING_TOOLS if self.talks else None) if group)
