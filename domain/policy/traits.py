"""Traits: facts that a tool declares about itself, on which rules, boundaries, limits and the session's loop depend."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from domain.policy.subjects import Subject, SubjectKind

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
        yield from self.unnamed()

    def unnamed(self) -> Iterator[Question]:
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
