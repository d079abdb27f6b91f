"""The records of a model call: the nodes it adds to the tree, and the events for watchers."""

import json
import time
from typing import Any

from activities.model.anthropic import ModelResponse
from activities.runtime.session_run import run_of
from activities.tools.support.output import clean
from domain import events as ev
from domain.agents.definition import AgentDefinition
from domain.agents.typed_output import Misfit, typed
from domain.conversations.mailbox import render
from domain.conversations.quoting import quoted
from domain.events import EventRow
from domain.ids import new_id
from domain.messages import ASSISTANT, NOTE, SILENT, SUMMARY, SYSTEM, TOOL_RESULTS, USER, Node, answered, calls_of
from domain.sessions.session import Usage
from domain.sessions.step import ModelCall, ModelReply, Purpose, preview
from domain.sessions.step_writes import BudgetUse, NewNode, OnceEvent, StepBegin, StepCommit
from store.messages import StepFacts

Body = tuple[str, str, dict[str, Any]]  # kind, author, content


def beginning(call: ModelCall, idem: str, attempt: int) -> StepBegin:
    """The first write of a call: what watchers see when the step begins, and what they see when it is tried again."""
    begins: list[ev.Event] = []
    if call.begins:
        if call.step == 1:
            begins.append(ev.TaskStarted(model=call.model))
        if call.previous is not None:
            begins.append(ev.StepCompleted(step=call.previous_step, result=call.previous))
        doing = call.doing or "Deciding what to do"
        begins.append(ev.StepStarted(step=call.step, description=f"{call.speaker}: {doing}" if call.speaker else doing))
    if call.switched_from:
        begins.append(
            ev.ModelSwitched(
                step=call.step, from_model=call.switched_from, to_model=call.model, reason=call.switch_reason or ""
            )
        )
    again = ev.AttemptReset(step=call.step, attempt=attempt)
    return StepBegin(
        tenant=call.ref.tenant,
        session_id=call.ref.session_id,
        run=run_of(call.ref),
        idem=idem,
        version=call.version - 1,
        step=call.step,
        attempt=attempt,
        head=call.head,
        take=call.take,
        purpose=call.purpose,
        events=[EventRow.of(call.ref, event) for event in begins],
        again=[EventRow.of(call.ref, again)],
    )


def prelude(call: ModelCall, context: list[Node], facts: StepFacts, opening: str = "") -> list[Node]:
    """What the context gains before the reply: results of the last step, messages taken, a note of the platform."""
    bodies: list[Body] = []
    if call.opening:
        bodies.append((USER, "", {"parts": [{"type": "text", "text": opening}]}))
    if context and calls_of(context[-1]):
        bodies.append((TOOL_RESULTS, "", answered(context[-1], facts.results)))
    for message in facts.inbox:
        parts = message.parts
        outcome = facts.outcomes.get(message.source) if message.source else None
        if outcome is not None:
            parts = [{"type": "text", "text": render([outcome])}]
        silent = {"silent": True} if message.kind == SILENT or (outcome and outcome.reference) else {}
        if message.kind == ASSISTANT:
            bodies.append((ASSISTANT, message.author, {"content": parts}))
        elif message.kind == SYSTEM:  # of another agent: nobody may take it for the text of a person
            text = quoted("\n\n".join(part["text"] for part in parts))
            bodies.append((NOTE, message.author, {"text": text, "origin": message.author}))
        else:
            hidden = {} if message.visible else {"visible": False}
            bodies.append((USER, message.author, {"parts": parts, **silent, **hidden}))
    if call.note:
        bodies.append((NOTE, "errand", {"text": call.note}))
    nodes = chain(call, context[-1].id if context else None, bodies)
    # results belong to the side that made the calls, also where the other side's turn has begun
    return [node.model_copy(update={"side": context[-1].side}) if node.kind == TOOL_RESULTS else node for node in nodes]


def chain(call: ModelCall, parent: str | None, bodies: list[Body]) -> list[Node]:
    nodes: list[Node] = []
    now = time.time_ns() // 1_000_000
    for place, (kind, author, body) in enumerate(bodies):
        node = Node(
            id=new_id(now + place),  # later nodes of one write sort after earlier ones
            parent=parent,
            session_id=call.ref.session_id,
            kind=kind,
            author=author,
            line=call.line,
            side=call.agent.side,
            step=call.step,
            body=json.dumps(body),
        )
        nodes.append(node)
        parent = node.id
    return nodes


def reply_nodes(
    call: ModelCall, agent: AgentDefinition, before: list[Node], turn: ModelResponse, facts: StepFacts
) -> list[Node]:
    """The reply itself, or the checkpoint that replaces the context; nothing if the model had said nothing yet."""
    if not turn.content:
        return []
    author = agent.speaker(call.agent.side)
    content: dict[str, Any] = {"content": turn.content, "model": call.model, "stop_reason": turn.stop_reason}
    calls = [block for block in turn.content if block["type"] == "tool_use"]
    if (turn_text := agent.side(call.agent.side).turn_text(calls)) is not None:
        content["turn_text"] = clean(turn_text)
    if turn.ends is not None:
        content["ends"] = turn.ends
    if turn.immediate:
        content["immediate"] = True
    body: Body = (ASSISTANT, author, content)
    if call.purpose is Purpose.COMPACT and turn.stop_reason != INTERRUPTED:
        body = (SUMMARY, author, {"text": turn.answer() + running_subagents(facts)})
    return chain(call, before[-1].id if before else None, [body])


def running_subagents(facts: StepFacts) -> str:
    """Subagents that still run must survive a checkpoint, whatever the model chose to write down."""
    if not facts.children:
        return ""
    lines = [f"- {child.name} (session: {child.session_id})" for child in facts.children]
    return "\n\nSubagents still running:\n" + "\n".join(lines)


INTERRUPTED = "interrupted"


def interrupt(turn: ModelResponse) -> None:
    """Make a reply of what had arrived; tool calls that were still being spelled out are dropped."""
    turn.content = [{"type": "text", "text": clean(turn.text)}] if turn.text.strip() else []
    turn.stop_reason = INTERRUPTED


def misfit(agent: AgentDefinition, call: ModelCall, turn: ModelResponse) -> str | None:
    """Why a final answer does not fit the agent's output schema, if it has one."""
    final = call.purpose is Purpose.TURN and not any(block["type"] == "tool_use" for block in turn.content)
    if agent.output_schema is None or agent.dual or not final:
        return None
    try:
        typed(agent.output_schema, turn.answer())
    except Misfit as error:
        return str(error)
    return None


def commit(
    call: ModelCall, idem: str, nodes: list[Node], reply: ModelReply, turn: ModelResponse, once: list[OnceEvent]
) -> StepCommit:
    """The last write of a call, without the deltas that go before it."""
    total = call.usage.plus(turn.usage)
    answer = reply.model_dump_json()
    written = [NewNode(**dict(node), idem=f"{idem}/{place}") for place, node in enumerate(nodes[:-1])]
    written += [NewNode(**dict(node), idem=idem, reply=answer) for node in nodes[-1:]]
    return StepCommit(
        tenant=call.ref.tenant,
        session_id=call.ref.session_id,
        run=run_of(call.ref),
        idem=idem,
        version=call.version,
        head=reply.head,
        line=call.line,
        take=call.take,
        usage=total,
        used=BudgetUse(tokens=turn.usage.tokens, cost_usd=turn.usage.cost_usd, steps=int(call.purpose is Purpose.TURN)),
        progress=turn.status or preview(turn.answer(), 200) or None,
        status_text=turn.status,
        reply=answer,
        nodes=written,
        once=once,
        events=[EventRow.of(call.ref, event) for event in _events(call, turn, total)],
    )


def _spoken(call: ModelCall) -> dict[str, Any]:
    return {"side": call.agent.side, "speaker": call.speaker} if call.speaker else {}


def _events(call: ModelCall, turn: ModelResponse, total: Usage) -> list[ev.Event]:
    events: list[ev.Event] = []
    text = turn.answer()
    if call.purpose is Purpose.COMPACT:
        events.append(ev.ContextCompacted(step=call.step, summary=preview(text)))
    else:
        if thinking := turn.thinking.strip():
            events.append(ev.Thinking(step=call.step, text=clean(thinking)))
        if text:
            events.append(
                ev.Message(step=call.step, text=text, interrupted=turn.stop_reason == INTERRUPTED, **_spoken(call))
            )
        if turn.status:
            events.append(ev.Progress(message=turn.status))
    events.append(ev.UsageUpdated(model=call.model, step=call.step, call=turn.usage, total=total))
    return events
