"""Tool calls under the rules: each call of a reply may run, needs an approval, or is refused with a reason."""

from typing import Any

from pydantic import TypeAdapter

from activities.tools.offered import Offered
from activities.tools.risks import judge_risks
from activities.tools.tool import Tool
from domain.json_object import JsonObject
from domain.messages import ToolCallBlock
from domain.missions import MARK
from domain.policy.rules import (
    Action,
    Rule,
    RuleVerdict,
    StandingRule,
    ToolTraits,
    find_barring_rule,
    still_asks,
    verdict,
)
from domain.sessions.session import AgentRef, Effect, SessionRef, ToolCall
from store import input_requests, sessions
from store.agents import load_view
from store.database import COMMIT_PATIENCE, Pool, patiently

RULES = TypeAdapter(list[list[Rule]])
FORBIDDEN = "The rules of this task forbid this call of {}: {}. It was not run."
QUESTION = 2_000  # characters of a question that ends a session


async def load_layers(pool: Pool, ref: SessionRef, agents: list[AgentRef]) -> list[list[Rule]]:
    """The layers of rules that bind a line of a session: of each agent from the session's own to the line's, of the
    task, and of the sessions above it."""
    session = await sessions.load(pool, ref)
    return [*[(await load_view(pool, agent)).rules for agent in agents], *session.rules]


async def judge_reply(
    pool: Pool,
    ref: SessionRef,
    tools: dict[str, Tool],
    offered: Offered,
    layers: list[list[Rule]],
    made: list[ToolCallBlock],
    may_ask: bool,
) -> list[ToolCall]:
    """The calls of a reply, with what rules, standing approvals and the risk triggers of a mission say about each."""
    calls = judge_calls(tools, offered, made, layers, may_ask)
    if any(one.ask for one in calls):
        standing = await patiently(
            lambda: input_requests.standing_rules(pool, ref.tenant, ref.conversation_id), seconds=COMMIT_PATIENCE
        )
        calls = drop_approved_asks(calls, offered, made, layers, standing)
    if any(rule.permission == MARK for rules in layers for rule in rules):  # the session belongs to a mission
        asked, given = calls, [one.arguments for one in made]
        calls = await patiently(lambda: judge_risks(pool, ref.tenant, layers, asked, given), seconds=COMMIT_PATIENCE)
    return calls


def judge_calls(
    known: dict[str, Tool], offered: Offered, blocks: list[ToolCallBlock], layers: list[list[Rule]], may_ask: bool
) -> list[ToolCall]:
    """What the layers say about each call: it runs, asks first, or is refused. `known`: all tools, including those that
    are not offered."""
    calls = []
    for index, block in enumerate(blocks):
        name = block.name
        tool, _ = offered.get(name, (None, None))
        if tool is not None:
            calls.append(_call(index, tool, block.arguments, layers, may_ask))
        else:
            traits = known.get(name) or ToolTraits(name=name[:64])
            calls.append(_not_offered(index, traits, block.arguments, list(offered), layers))
    return calls


def _call(index: int, tool: Tool, arguments: JsonObject, layers: list[list[Rule]], may_ask: bool) -> ToolCall:
    summary = tool.call_summary(arguments)
    found = judge_call(tool, arguments, layers)
    if found.action is Action.DENY and not tool.starts:  # the planning of children refuses a denied subagent
        return _deny(index, tool, found, summary)
    if found.action is Action.ASK and not may_ask:
        return _refuse(index, tool, "This needs approval.", f"May {tool.name} run: {summary}?", asks=True)
    return ToolCall(
        index=index,
        name=tool.name,
        activity=tool.activity or f"tool.{tool.name}",
        effect=tool.effect,
        timeout_s=tool.timeout_s,
        preview=summary,
        ask=found.action is Action.ASK,
        bookkeeping=tool.bookkeeping,
        talks=tool.talks,
        asks=tool.asks,
        external=tool.external,
    )


def _not_offered(
    index: int, tool: ToolTraits, arguments: JsonObject, offered: list[str], layers: list[list[Rule]]
) -> ToolCall:
    """Refuse a tool that the model remembers but no longer has, or guessed."""
    if not tool.asks and (found := find_barring_rule(layers, tool)):
        return _deny(index, tool, found, f"denied tool {tool.name}")
    question = str(arguments.get("question", ""))[:QUESTION] if tool.asks else ""
    refusal = f"There is no tool {tool.name!r}. You have: {', '.join(offered) or 'none'}."
    return _refuse(index, tool, refusal, question or f"unknown tool {tool.name}", asks=tool.asks)


def judge_call(tool: Tool, arguments: Any, layers: list[list[Rule]]) -> RuleVerdict:
    subjects = tool.call_subjects(arguments)
    if subjects is None:  # the arguments are invalid and it will not run, so no approval is needed
        found = verdict(layers, tool)
        return found if found.action is Action.DENY else RuleVerdict(Action.ALLOW)
    return verdict(layers, tool, subjects)


def _deny(index: int, tool: ToolTraits, found: RuleVerdict, summary: str) -> ToolCall:
    refused = _refuse(index, tool, FORBIDDEN.format(tool.name, found.because), summary)
    return refused.model_copy(update={"denied": True, "rule": found.rule})


def _refuse(index: int, tool: ToolTraits, refusal: str, summary: str, *, asks: bool = False) -> ToolCall:
    return ToolCall(
        index=index,
        name=tool.name,
        activity="tool.refuse",
        effect=Effect.READ,
        timeout_s=10,
        preview=summary,
        refusal=refusal,
        bookkeeping=True,
        asks=asks,
    )


def drop_approved_asks(
    calls: list[ToolCall],
    offered: Offered,
    blocks: list[ToolCallBlock],
    layers: list[list[Rule]],
    standing: list[StandingRule],
) -> list[ToolCall]:
    """The calls; those that a person has approved for the whole conversation no longer need to ask."""
    found: list[ToolCall] = []
    for call, block in zip(calls, blocks, strict=True):
        if call.ask:
            tool, _ = offered[block.name]
            subjects = tool.call_subjects(block.arguments)
            of_its_kind: list[Rule] = [rule for rule in standing if rule.external is tool.external]
            asks = subjects is None or still_asks(layers, of_its_kind, tool, subjects)
            call = call.model_copy(update={"ask": asks})
        found.append(call)
    return found
