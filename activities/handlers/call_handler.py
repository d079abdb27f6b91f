"""call_handler: one turn of a side whose turns are taken by Python code. It is recorded like a model's reply."""

from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.model.call_model import CallModel
from activities.tools.offered import ReplyPrompt
from activities.tools.tool import clean
from activities.user_code import run_apart, run_within
from domain import wire
from domain.agents.definition import AgentDefinition
from domain.agents.handler import Handler, HandlerReply, HandlerTurn, as_handler_sees
from domain.agents.variables import model_values, resolve_values
from domain.conversations.subagents import is_enabled
from domain.ids import derive_id
from domain.messages import ModelResponse, TextBlock, ToolCallBlock
from domain.sessions.session import ModelCall, ModelReply, StopReason

ATTEMPTS = 3  # for a handler that raises or takes too long; the death of a worker does not count
SECONDS = 120.0  # for one turn


class HandlerError(Exception):
    """A handler failed. The text has its name and the kind of error, but none of its input."""


class CallHandler(CallModel):
    """The activity. It works like a model call, but the reply comes from a handler."""

    handlers: dict[str, Handler]

    def __init__(self, handlers: dict[str, Handler], *services: Any) -> None:
        super().__init__(*services)
        self.handlers = handlers

    @activity.defn(name="call_handler")
    async def call_handler(self, call: ModelCall) -> ModelReply:
        return await self.reply_to(call)

    def show_as(self, call: ModelCall, agent: AgentDefinition) -> ModelCall:
        """The name of the handler, which events and messages show instead of a model."""
        return call.model_copy(update={"model": f"handler:{agent.side(call.agent.side).handler}"})

    async def ask(self, prompt: ReplyPrompt, turn: ModelResponse) -> None:
        call = prompt.call
        name = prompt.agent.side(call.agent.side).handler or ""
        handler = self.handlers.get(name)
        if handler is None:
            raise HandlerError(f"This worker has no handler {name!r}.")
        reply = await _reply(name, handler, _turn(prompt))
        if text := clean(reply.text):
            turn.content.append(TextBlock(text=text))
        key = derive_id(call.ref.session_id, "turn", call.step)
        turn.content += [
            ToolCallBlock(id=f"call_{key}_{index}", name=one.name, arguments=one.input)
            for index, one in enumerate(reply.calls)
        ]
        turn.stop_reason = StopReason.TOOL_CALLS if reply.calls else StopReason.ANSWERED
        turn.ends, turn.status = reply.ends, clean(reply.status) if reply.status else None

    async def failure(self, call: ModelCall, attempt: int, error: Exception) -> ApplicationError:
        if not isinstance(error, HandlerError):
            return await super().failure(call, attempt, error)
        return ApplicationError(
            str(error),
            type=wire.HANDLER_FAILED,
            non_retryable=attempt >= ATTEMPTS,
            next_retry_delay=timedelta(seconds=attempt),
        )


def _turn(prompt: ReplyPrompt) -> HandlerTurn:
    call, agent, given = prompt.call, prompt.agent, prompt.facts.variables
    variables = resolve_values(agent, given)
    side = agent.side(call.agent.side)
    return HandlerTurn(
        key=derive_id(call.ref.session_id, "turn", call.head or "", call.step),
        session_id=call.ref.session_id,
        agent=agent.name,
        side=call.agent.side,
        label=side.label,
        step=call.step,
        messages=as_handler_sees(prompt.nodes, call.agent.side),
        variables=model_values(agent, given),
        tools=list(prompt.tools),
        subagents=[
            one.name for one in agent.subagent_tools if one.resumable and not one.hidden and is_enabled(one, variables)
        ],
    )


async def _reply(name: str, handler: Handler, turn: HandlerTurn) -> HandlerReply:
    try:
        return await run_within(SECONDS, run_apart(_answer, handler, turn))
    except TimeoutError:
        raise HandlerError(f"The handler {name!r} took longer than {SECONDS:g} seconds.") from None
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, one['loc'])) or 'reply'}: {one['msg']}"
            for one in error.errors(include_url=False, include_input=False)[:5]
        )
        raise HandlerError(f"The reply of the handler {name!r} cannot be used: {problems}") from None
    except Exception as error:
        # The error's text may contain secrets, and a cause would be written to Temporal's history.
        activity.logger.exception("the handler %s failed", name)
        raise HandlerError(f"The handler {name!r} failed ({type(error).__name__}).") from None


async def _answer(handler: Handler, turn: HandlerTurn) -> HandlerReply:
    return HandlerReply.model_validate(await handler(turn))
