"""The model itself: one streamed request through the anthropic SDK, its pieces handed on as they arrive."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import anthropic

from activities.model.errors import IncompleteStream
from activities.tools.support.output import clean
from domain.agents.prices import PriceTable
from domain.limits.budget import CallEstimate
from domain.sessions.session import Usage


@dataclass
class ModelResponse:
    """What one request brought, whole or interrupted."""

    content: list[dict[str, Any]] = field(default_factory=list)
    stop_reason: str = ""
    usage: Usage = field(default_factory=Usage)
    text: str = ""  # so far
    thinking: str = ""
    # of a handler's reply: whether it ends the session, and the status that it publishes
    ends: Literal["stop", "fail"] | None = None
    status: str | None = None
    immediate: bool = False  # the platform's own calls, at the beginning of a thread

    def answer(self) -> str:
        return "\n\n".join(block["text"] for block in self.content if block["type"] == "text")


class Model:
    def __init__(self, client: anthropic.AsyncAnthropic, prices: PriceTable) -> None:
        # Temporal owns the retries: the SDK's own would hide attempts, and it obeys any retry-after without a ceiling
        self._client = client.with_options(max_retries=0)
        self._prices = prices

    async def ask(
        self,
        request: dict[str, Any],
        turn: ModelResponse,
        on_text: Callable[[str], None],
        on_thinking: Callable[[str], None],
    ) -> None:
        """Fills `turn` as the stream goes, so that an interrupted call still knows what it had.

        The SDK's raw events are put together here: its own accumulating helper costs as much time as all the rest.
        """
        blocks: dict[int, dict[str, Any]] = {}
        tokens: dict[str, int] = {}
        stream = await self._client.messages.create(**request, stream=True)
        async with stream:
            async for event in stream:
                if event.type == "content_block_delta":
                    _grow(blocks[event.index], event.delta, turn, on_text, on_thinking)
                elif event.type == "content_block_start":
                    blocks[event.index] = {**event.content_block.to_dict(mode="json"), "json": ""}
                elif event.type == "message_start":
                    turn.usage = self._usage(request["model"], _tokens(tokens, event.message.usage))
                elif event.type == "message_delta":
                    turn.stop_reason = event.delta.stop_reason or ""
                    turn.usage = self._usage(request["model"], _tokens(tokens, event.usage))
        if not turn.stop_reason:
            raise IncompleteStream("The model's reply broke off before its end.")
        turn.content = [kept for kept in (_kept(blocks[index]) for index in sorted(blocks)) if kept]

    def thinking(self, model: str, tokens: int) -> dict[str, Any]:
        return self._prices.thinking(model, tokens)

    def estimate(self, model: str, input_tokens: int, output_tokens: int) -> CallEstimate:
        """What a call may use at the most; input is dearest where it is written to the cache."""
        return CallEstimate(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            input_usd=self._prices.cost(model, 0, 0, cache_write=input_tokens),
            output_usd=self._prices.cost(model, 0, output_tokens),
        )

    def nearly_full(self, model: str, usage: Usage) -> bool:
        window = self._prices.context_window(model)
        return window is not None and usage.tokens > 0.8 * window

    def _usage(self, model: str, tokens: dict[str, int]) -> Usage:
        known = {name: tokens.get(theirs, 0) for name, theirs in _COUNTS.items()}
        cost = self._prices.cost(
            model,
            known["input_tokens"],
            known["output_tokens"],
            known["cache_read_tokens"],
            known["cache_write_tokens"],
        )
        return Usage(llm_calls=1, cost_usd=cost, **known)


_COUNTS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}


def _tokens(so_far: dict[str, int], usage: Any) -> dict[str, int]:
    """The counts are cumulative, and a later event may leave some out."""
    for name in _COUNTS.values():
        if (count := getattr(usage, name, None)) is not None:
            so_far[name] = count
    return so_far


def _grow(
    block: dict[str, Any],
    delta: Any,
    turn: ModelResponse,
    on_text: Callable[[str], None],
    on_thinking: Callable[[str], None],
) -> None:
    if delta.type == "text_delta":
        block["text"] += delta.text
        turn.text += delta.text
        on_text(delta.text)
    elif delta.type == "input_json_delta":
        block["json"] += delta.partial_json
    elif delta.type == "thinking_delta":
        block["thinking"] += delta.thinking
        turn.thinking += delta.thinking
        on_thinking(delta.thinking)
    elif delta.type == "signature_delta":
        block["signature"] = delta.signature


def _kept(block: dict[str, Any]) -> dict[str, Any] | None:
    """The fields that the API takes back, and nothing else. Arguments that are not JSON raise ValueError."""
    if block["type"] == "text":
        text = clean(block["text"])
        return {"type": "text", "text": text} if text.strip() else None
    if block["type"] == "tool_use":
        arguments = json.loads(block["json"]) if block["json"] else block["input"]
        if not isinstance(arguments, dict):
            raise ValueError("the arguments of a tool call are not an object")
        return {"type": "tool_use", "id": block["id"], "name": block["name"], "input": arguments}
    if block["type"] == "thinking":
        return {"type": "thinking", "thinking": block["thinking"], "signature": block.get("signature", "")}
    if block["type"] == "redacted_thinking":
        return {"type": "redacted_thinking", "data": block["data"]}
    return None
