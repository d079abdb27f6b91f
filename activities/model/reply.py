"""The messages of a model step: the context that it reads, and the nodes, events and writes that it adds."""

import time
from collections import OrderedDict

from activities.attempt import run_of
from activities.tools.tool import clean
from domain import events as ev
from domain.agents.definition import AgentDefinition
from domain.agents.typed_output import Misfit, parse_typed
from domain.conversations.mailbox import quote, quote_line, render_outcomes
from domain.conversations.requests import InboxKind
from domain.events import CallAttempt, EventRow
from domain.ids import new_id
from domain.json_schema import run_check
from domain.messages import (
    ASSISTANT,
    TOOL_RESULTS,
    Body,
    ModelResponse,
    Node,
    NoteBody,
    QueuedTool,
    ReplyBody,
    SummaryBody,
    TextBlock,
    ToolCallBlock,
    UserBody,
    answer_node,
    calls_of,
    fill_checkpoint,
    join_text,
)
from domain.sessions.session import ModelCall, ModelReply, Purpose, SessionRef, StopReason, Usage, preview
from domain.sessions.writes import BudgetUse, NewNode, OnceEvent, StepBegin, StepCommit
from store import messages, resets
from store.database import Pool
from store.messages import HistoryLost, StepFacts, TakenMessage

Authored = tuple[str, Body]
REMEMBERED = 200
NOT_RUN = "These tools were queued and not run any more: {}."
INTERRUPTED = "Your last reply was interrupted. Continue from there."


# before the model is asked


def begin_write(call: ModelCall, by: CallAttempt, prices: str | None) -> StepBegin:
    """The first write of a call: the events when its step begins, and those when it is tried again. `prices`: the list
    that has the model's price."""
    begins: list[ev.Event] = []
    if call.begins:
        if call.step == 1:
            begins.append(ev.TaskStarted(model=call.model, prices=prices))
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
    again = ev.AttemptReset(step=call.step, attempt=by.attempt)
    return StepBegin(
        tenant=call.ref.tenant,
        session_id=call.ref.session_id,
        run=run_of(call.ref),
        idem=by.call,
        version=call.version - 1,
        step=call.step,
        attempt=by.attempt,
        head=call.head,
        take=call.take,
        purpose=call.purpose,
        events=[EventRow.of(call.ref, event, by=by) for event in begins],
        again=[EventRow.of(call.ref, again, by=by)],
    )


class Contexts:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._known: OrderedDict[tuple[SessionRef, str], list[Node]] = OrderedDict()

    async def load(self, ref: SessionRef, line: str, head: str | None) -> list[Node]:
        """The nodes up to `head`. For a line that this worker knows, only new nodes are read. If the nodes are lost,
        the result is empty and the conversation starts again."""
        if head is None:
            return []
        known = self._known.get((ref, line), [])
        if known and known[-1].id == head:
            return known
        try:
            fresh, follows = await messages.context(self._pool, ref.tenant, head, known[-1].id if known else None)
        except HistoryLost:
            await resets.begin_anew(self._pool, ref, head)
            return []
        nodes = known + fresh if follows else fresh
        self.remember(ref, line, nodes)
        return nodes

    def remember(self, ref: SessionRef, line: str, nodes: list[Node]) -> None:
        self._known[ref, line] = nodes
        self._known.move_to_end((ref, line))
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def forget(self, ref: SessionRef) -> None:
        for key in [key for key in self._known if key[0] == ref]:
            del self._known[key]


def build_prelude(call: ModelCall, context: list[Node], facts: StepFacts, opening: str = "") -> list[Node]:
    """The nodes before the reply: results of the last step, messages taken, a note of the platform."""
    bodies: list[Authored] = []
    if call.opening:
        bodies.append(("", UserBody(parts=[TextBlock(text=opening)])))
    if context and calls_of(context[-1]):
        bodies.append(("", answer_node(context[-1], facts.results)))
    messages = [message for message in facts.inbox if message.kind is not InboxKind.TOOL]
    bodies += [(message.author, _taken(message, facts)) for message in messages]
    if call.note:
        bodies.append(("errand", NoteBody(text=call.note)))
    waiting = _queued(facts)
    if waiting and call.purpose is not Purpose.TURN:
        bodies.append(("errand", NoteBody(text=NOT_RUN.format(", ".join(one.name for one in waiting)))))
    if not (bodies or waiting) and call.purpose is Purpose.TURN and _ends_with_own_reply(context, call.agent.side):
        bodies.append(("errand", NoteBody(text=INTERRUPTED)))
    nodes = chain_nodes(call, context[-1].id if context else None, bodies)
    # Results belong to the side that made the calls, even if the other side's turn has begun.
    return [node.model_copy(update={"side": context[-1].side}) if node.kind == TOOL_RESULTS else node for node in nodes]


def find_queued_calls(call: ModelCall, facts: StepFacts) -> list[ToolCallBlock]:
    """A reply of the platform that makes the tool calls from the inbox, before the model is asked."""
    return [
        ToolCallBlock(id=f"queued_{call.step}_{place}", name=one.name, arguments=one.arguments)
        for place, one in enumerate(_queued(facts) if call.purpose is Purpose.TURN else [])
    ]


def _queued(facts: StepFacts) -> list[QueuedTool]:
    return [QueuedTool.model_validate_json(join_text(one.parts)) for one in facts.inbox if one.kind is InboxKind.TOOL]


def _ends_with_own_reply(context: list[Node], side: str) -> bool:
    """Whether the context ends with this side's reply, as after a call that another run of the session interrupted. A
    model cannot continue its own last message, so a note must follow."""
    return bool(context) and context[-1].kind == ASSISTANT and context[-1].side == side


def _taken(message: TakenMessage, facts: StepFacts) -> Body:
    """The node for a message of the inbox."""
    parts = message.parts
    outcome = facts.outcomes.get(message.source) if message.source else None
    if outcome is not None:
        parts = [TextBlock(text=render_outcomes([outcome]))]
    if message.kind is InboxKind.ASSISTANT:
        return ReplyBody(content=[one for one in parts if isinstance(one, TextBlock)])  # it never brings files
    if message.kind is InboxKind.SYSTEM:  # from another agent: it must not look like a person's text
        return NoteBody(text=quote(join_text(parts)), origin=message.author)
    silent = message.kind is InboxKind.SILENT or (outcome is not None and outcome.reference is not None)
    return UserBody(parts=parts, silent=silent, visible=message.visible)


# after it has replied


def build_reply(
    call: ModelCall, agent: AgentDefinition, before: list[Node], turn: ModelResponse, facts: StepFacts
) -> list[Node]:
    """The reply, or the checkpoint that replaces the context; nothing if the model had not replied yet."""
    if not turn.content:
        return []
    author = agent.speaker(call.agent.side)
    body: Body
    if call.purpose is Purpose.COMPACT and turn.stop_reason is not StopReason.INTERRUPTED:
        children = [f"{quote_line(child.name)} (session: {child.session_id})" for child in facts.children]
        body = SummaryBody(text=fill_checkpoint(turn.answer(), children))
    else:
        turn_text = agent.side(call.agent.side).turn_text(turn.calls)
        body = ReplyBody(
            content=turn.content,
            model=call.model,
            stop_reason=turn.stop_reason,
            turn_text=clean(turn_text) if turn_text is not None else None,
            ends=turn.ends,
            immediate=turn.immediate,
        )
    return chain_nodes(call, before[-1].id if before else None, [(author, body)])


def chain_nodes(call: ModelCall, parent: str | None, bodies: list[Authored]) -> list[Node]:
    nodes: list[Node] = []
    now = time.time_ns() // 1_000_000
    for place, (author, body) in enumerate(bodies):
        node = Node(
            id=new_id(now + place),  # later nodes of one write sort after earlier ones
            parent=parent,
            session_id=call.ref.session_id,
            kind=body.kind,
            author=author,
            line=call.line,
            side=call.agent.side,
            step=call.step,
            body=body,
        )
        nodes.append(node)
        parent = node.id
    return nodes


def cut_reply(turn: ModelResponse) -> None:
    """Make a reply of the part that had arrived; incomplete tool calls are dropped."""
    turn.content = [TextBlock(text=clean(turn.text))] if turn.text.strip() else []
    turn.stop_reason = StopReason.INTERRUPTED


async def find_misfit(agent: AgentDefinition, call: ModelCall, turn: ModelResponse) -> str | None:
    """Why a final answer does not fit the agent's output schema, if the agent has one."""
    if agent.output_schema is None or agent.dual or call.purpose is not Purpose.TURN or turn.calls:
        return None
    try:
        await run_check(parse_typed, agent.output_schema, turn.answer())
    except Misfit as error:
        return str(error)
    return None


def commit_write(
    call: ModelCall, by: CallAttempt, nodes: list[Node], reply: ModelReply, turn: ModelResponse, once: list[OnceEvent]
) -> StepCommit:
    """The events of a call's last write, without the deltas before it."""
    total = call.usage.plus(turn.usage)
    written = [NewNode(**dict(node), idem=f"{by.call}/{place}") for place, node in enumerate(nodes[:-1])]
    written += [NewNode(**dict(node), idem=by.call, reply=reply) for node in nodes[-1:]]
    return StepCommit(
        tenant=call.ref.tenant,
        session_id=call.ref.session_id,
        run=run_of(call.ref),
        idem=by.call,
        version=call.version,
        head=reply.head,
        line=call.line,
        take=call.take,
        usage=total,
        used=BudgetUse(tokens=turn.usage.tokens, cost_usd=turn.usage.cost_usd, steps=int(call.purpose is Purpose.TURN)),
        progress=turn.status or preview(turn.answer(), 200) or None,
        status_text=turn.status,
        reply=reply,
        nodes=written,
        once=once,
        events=[EventRow.of(call.ref, event, by=by) for event in _events(call, turn, total, len(reply.calls))],
    )


def _events(call: ModelCall, turn: ModelResponse, total: Usage, calls: int) -> list[ev.Event]:
    events: list[ev.Event] = []
    text = turn.answer()
    if call.purpose is Purpose.COMPACT:
        events.append(ev.ContextCompacted(step=call.step, summary=preview(text)))
    else:
        if thinking := turn.thinking.strip():
            events.append(ev.Thinking(step=call.step, text=clean(thinking)))
        if text:
            events.append(
                ev.Message(
                    step=call.step,
                    text=text,
                    interrupted=turn.stop_reason is StopReason.INTERRUPTED,
                    side=call.agent.side if call.speaker else "a",
                    speaker=call.speaker,
                )
            )
        if turn.status:
            events.append(ev.Progress(message=turn.status))
    used = ev.UsageUpdated(
        model=call.model, step=call.step, call=turn.usage, total=total, calls=calls, estimated=turn.estimated
    )
    events.append(used)
    return events
