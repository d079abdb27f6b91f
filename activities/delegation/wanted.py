"""A delegation call that is being begun, and the child that the conversation is asked for."""

from dataclasses import dataclass
from typing import Any

from activities.delegation.child_plan import Planned
from domain.agents.subagent_tool import ReceivingSide
from domain.conversations.delegation import DelegationCall, DelegationTool
from domain.conversations.inbox import InboxKind
from domain.conversations.requests import CallRef, SpawnChild
from domain.conversations.subagent import SubagentTerms
from domain.ids import derive_id


@dataclass
class Wanted:
    """One call with its checked arguments."""

    index: int
    kind: DelegationTool
    tool: str  # its name, which may be an agent's name
    arguments: Any
    addresses: bool  # the tool works with subagents that are tools of the prompt
    planned: Planned | None = None

    def key(self, call: DelegationCall) -> str:
        """The same at every attempt of the call."""
        return f"{call.node}:{self.index}"

    def child_id(self, call: DelegationCall) -> str:
        """The session that the call starts."""
        return derive_id(call.node, "child", self.index)


def child_of(call: DelegationCall, one: Wanted) -> SpawnChild:
    assert one.planned is not None and one.planned.session is not None
    return SpawnChild(
        session_id=one.child_id(call),
        kind=one.kind,
        name=one.planned.name,
        thread=one.planned.thread,
        prompt=CallRef(
            node=call.node,
            index=one.index,
            field=one.planned.field,
            within=one.planned.within,
            kind=_kind(one.planned.terms),
            attachments=one.planned.attachments,
        ),
        session=one.planned.session,
        delivery=one.planned.delivery,
    )


def _kind(terms: SubagentTerms | None) -> InboxKind:
    """The role with which a parent's message arrives. If it is addressed to side B, it arrives as a message of side
    A."""
    return InboxKind.ASSISTANT if terms and terms.receives_messages is ReceivingSide.SIDE_B else InboxKind.USER
