"""Tool calls under the rules: each call of a reply may run, needs a person's approval, or is refused with a reason."""

from typing import Any

from pydantic import TypeAdapter

from activities.model.anthropic import ModelResponse
from activities.tools.offered import ASK_USER, Offered
from activities.tools.tool import Tool
from domain.policy.rules import STARTERS, Action, Rule, RuleVerdict, barring, verdict
from domain.sessions.step import Effect, ToolCall

RULES = TypeAdapter(list[list[Rule]])
FORBIDDEN = "The rules of this task forbid this call of {}: {}. It was not run."
QUESTION = 2_000  # characters of a question that ends a session


def tool_calls(tools: Offered, turn: ModelResponse, layers: list[list[Rule]], may_ask: bool) -> list[ToolCall]:
    blocks = [block for block in turn.content if block["type"] == "tool_use"]
    return [_call(index, block, tools, layers, may_ask) for index, block in enumerate(blocks)]


def _call(index: int, block: dict[str, Any], tools: Offered, layers: list[list[Rule]], may_ask: bool) -> ToolCall:
    name = block["name"][:64]
    tool, _ = tools.get(block["name"], (None, None))
    if tool is None and name != ASK_USER and (rule := barring(layers, name)):
        return _denied(index, name, RuleVerdict(Action.DENY, rule), f"denied tool {name}")
    if tool is None:
        question = str(block["input"].get("question", ""))[:QUESTION] if name == ASK_USER else ""
        refusal = f"There is no tool {name!r}. You have: {', '.join(tools) or 'none'}."
        return _refused(index, name, refusal, question or f"unknown tool {name}")
    summary = tool.call_summary(block["input"])
    found = verdict_on(tool, block["input"], layers)
    if (
        found.action is Action.DENY and name not in STARTERS
    ):  # who may be delegated to is told where children are planned
        return _denied(index, name, found, summary)
    if found.action is Action.ASK and not may_ask:
        return _refused(index, ASK_USER, "This needs approval.", f"May {name} run: {summary}?")
    return ToolCall(
        index=index,
        name=name,
        activity=tool.activity or f"tool.{tool.name}",
        effect=tool.effect,
        timeout_s=tool.timeout_s,
        preview=summary,
        ask=found.action is Action.ASK,
        quick=tool.quick,
    )


def verdict_on(tool: Tool, arguments: Any, layers: list[list[Rule]]) -> RuleVerdict:
    subjects = tool.call_subjects(arguments)
    if subjects is None:  # nothing of it will run, so nobody need be asked
        found = verdict(layers, tool.name)
        return found if found.action is Action.DENY else RuleVerdict(Action.ALLOW)
    return verdict(layers, tool.name, subjects)


def _denied(index: int, name: str, found: RuleVerdict, words: str) -> ToolCall:
    refused = _refused(index, name, FORBIDDEN.format(name, found.because), words)
    return refused.model_copy(update={"denied": True, "rule": found.rule})


def _refused(index: int, name: str, refusal: str, words: str) -> ToolCall:
    return ToolCall(
        index=index,
        name=name,
        activity="tool.refuse",
        effect=Effect.READ,
        timeout_s=10,
        preview=words,
        refusal=refusal,
        quick=True,
    )
