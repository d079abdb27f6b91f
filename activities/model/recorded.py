"""Recordings: a rerun with the answers and tool results of its original, so that only rules and limits are new."""

from dataclasses import dataclass, field

from errand.models import Rerun
from temporalio.exceptions import ApplicationError

from activities.model import reply
from activities.tools import rules as tool_rules
from activities.tools.offered import Offered
from activities.tools.tool import HAND_OVER, Tool, ToolResult
from domain import wire
from domain.messages import UNANSWERED, ModelResponse, Node, ReplyBody, ToolCallBlock
from domain.policy.rules import Action, Rule
from domain.sessions.session import CallState, Effect, ModelCall, ModelReply, Purpose, StopReason, ToolCall, Usage
from store import tool_calls as calls_made
from store import traces
from store.database import Pool
from store.messages import StepFacts

RECORDED = "recorded"  # the activity tool.recorded returns the result of the original's call
MAIN = "main"
ENDED = "The original was never asked this."
WOULD_ASK = "This call would have waited for a person's approval. It was not run."


@dataclass(frozen=True)
class Played:
    """A recorded answer, with the messages before it and its original usage."""

    turn: ModelResponse
    messages: list[reply.Authored]
    body: ReplyBody
    usage: Usage
    continues: bool = False
    inside: set[int] = field(default_factory=set)  # calls inside which a subagent of the original ran


async def play_reply(pool: Pool, call: ModelCall, rerun: Rerun) -> Played:
    if call.purpose is Purpose.COMPACT:  # no model reads the context, so it need not be compacted
        return Played(ModelResponse(stop_reason=StopReason.ANSWERED), [], ReplyBody(content=[]), Usage())
    tenant, source = call.ref.tenant, rerun.session_id
    found = place = None
    if call.purpose is Purpose.TURN:
        place = await traces.find_repeated(pool, tenant, call.ref.session_id, call.line, call.step)
    first = rerun.from_step if call.line == MAIN else 1
    if place is not None:
        found = await traces.find_recorded_reply(pool, tenant, source, place.line, first, place.number)
    if found is None or place is None:
        raise ApplicationError(ENDED, type=wire.RECORDING_ENDED, non_retryable=True)
    said = await traces.find_messages_to(pool, tenant, source, place.line, found.step) if place.number > 1 else []
    body = found.body
    turn = ModelResponse(content=body.content, stop_reason=body.stop_reason, thinking=body.thinking)
    following = await traces.find_recorded_reply(pool, tenant, source, place.line, first, place.number + 1)
    return Played(
        turn,
        said,
        body.model_copy(update={"origin": found.node}),
        ModelReply.model_validate_json(found.reply).usage,
        continues=following is not None,
        inside=await traces.lines_within(pool, tenant, source, place.line, found.step),
    )


def build_nodes(call: ModelCall, author: str, before: list[Node], played: Played) -> list[Node]:
    answer: list[reply.Authored] = [(author, played.body)] if played.turn.content else []
    return reply.chain_nodes(call, before[-1].id if before else None, [*played.messages, *answer])


def judge_recorded(
    known: dict[str, Tool], tools: Offered, played: Played, layers: list[list[Rule]], rerun: Rerun, facts: StepFacts
) -> list[ToolCall]:
    """Each call returns its recorded result, unless a rule that the original did not have stops it. A subagent that ran
    inside a call runs there again, with its own recorded answers."""
    own = len(tool_rules.RULES.validate_json(facts.rules)) - rerun.layers
    before = layers[: len(layers) - own]
    blocks = played.turn.calls
    made = tool_rules.judge_calls(known, tools, blocks, layers, facts.may_ask)
    return [
        _call(call, block, tools, layers, before, call.index in played.inside)
        for call, block in zip(made, blocks, strict=True)
    ]


def _call(
    call: ToolCall,
    block: ToolCallBlock,
    tools: Offered,
    layers: list[list[Rule]],
    before: list[list[Rule]],
    inside: bool,
) -> ToolCall:
    if call.refusal is not None:
        return call
    tool, _ = tools[block.name]
    now = tool_rules.judge_call(tool, block.arguments, layers)
    forbidden = now.action is Action.DENY
    was = tool_rules.judge_call(tool, block.arguments, before).action
    asked = now.action is Action.ASK and was is not Action.ASK
    refusal = tool_rules.FORBIDDEN.format(call.name, now.because) if forbidden else WOULD_ASK if asked else None
    # A handoff happens again, because the calls after it belong to the agent that took over.
    if (inside or call.activity == HAND_OVER) and refusal is None:
        return call.model_copy(update={"ask": False})
    activity = "tool.refuse" if refusal else f"tool.{RECORDED}"
    denied = {"refusal": refusal, "denied": forbidden, "rule": now.rule if forbidden else None}
    return call.model_copy(update=denied | {"activity": activity, "effect": Effect.READ, "timeout_s": 10, "ask": False})


async def original_result(pool: Pool, tenant: str, reply: ReplyBody, index: int) -> ToolResult:
    """`reply`: the reply that repeats the original's."""
    made = await calls_made.get_results(pool, tenant, reply.origin or "")
    known = next((one for one in made if one.index == index and one.state is not CallState.STARTED), None)
    if known is None:
        return ToolResult(UNANSWERED, failed=True)
    return ToolResult(known.text, failed=known.state is not CallState.OK, files=known.files)
