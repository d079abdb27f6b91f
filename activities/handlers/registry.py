"""All handlers by name: those that come with the platform, and those that users add as HANDLERS, name -> async
function, in the module of their own tools."""

import inspect
import re

from activities.tools.registry import Loaded, users_module
from domain.agents.handler import AnsweredCall, Handler, HandlerCall, HandlerReply, HandlerTurn, Speaker
from domain.conversations.subagents import DelegationTool

ROUNDS = "ROUNDS"  # the variable for how often each of them may speak
DEFAULT_ROUNDS = 2
MOST_ROUNDS = 50
CREATE, MESSAGE = DelegationTool.SUBAGENT_CREATE, DelegationTool.SUBAGENT_MESSAGE
_RESULT = re.compile(r"^Subagent \(reference: [^)]*\) has returned the following result:\n\n", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


async def hand_in(turn: HandlerTurn) -> HandlerReply:
    """End the session with the other side's message, so that an agent with one prompt can be a subagent."""
    said = [message.text for message in turn.messages if message.speaker is Speaker.OTHER and message.text]
    if not said:
        return HandlerReply(text="Nothing was said.", ends="fail")
    return HandlerReply(text=said[-1], ends="stop")


async def round_table(turn: HandlerTurn) -> HandlerReply:
    """Lead a conversation of several subagents, and report it. The next speaker is the one that the last speaker
    addressed as @name, else the one that has been silent longest."""
    seats = turn.subagents
    if len(seats) < 2:
        return HandlerReply(text="A round table needs at least two resumable subagents.", ends="fail")
    topic = "\n\n".join(message.text for message in turn.messages if message.speaker is Speaker.USER)
    made = [call for message in turn.messages for call in message.calls]
    if failed := next((call for call in made if call.failed), None):
        return HandlerReply(text=f"{_name(failed)} could not speak: {failed.result}", ends="fail")
    said = [(_name(call), _RESULT.sub("", call.result)) for call in made]
    minutes = "\n\n".join(f"{name}: {text}" for name, text in said)
    if len(said) >= _rounds(turn) * len(seats):
        return HandlerReply(text=f"What was said about {topic}\n\n{minutes}")
    name = _next_speaker(seats, said)
    status = f"{name} speaks ({len(said) + 1} of {_rounds(turn) * len(seats)})"
    spoken = [one for one, _ in said]
    since = said[len(said) - spoken[::-1].index(name) :] if name in spoken else said
    news = "\n\n".join(f"{one}: {text}" for one, text in since) or "You speak first."
    message = f"The topic: {topic}\n\n{news}" if name not in spoken else news
    if name in spoken:
        return HandlerReply(
            calls=[HandlerCall(name=MESSAGE, input={"target": name, "message": message})], status=status
        )
    return HandlerReply(
        calls=[HandlerCall(name=CREATE, input={"agent": name, "name": name, "message": message})], status=status
    )


def _name(call: AnsweredCall) -> str:
    return str(call.input.get("target") or call.input.get("name") or call.name)


def _next_speaker(seats: list[str], said: list[tuple[str, str]]) -> str:
    if said:
        last, text = said[-1]
        addressed = next((one for one in seats if one != last and re.search(rf"@{re.escape(one)}\b", text)), None)
        if addressed is not None:
            return addressed
    spoken = [name for name, _ in said]
    return min(seats, key=lambda name: len(spoken) - spoken[::-1].index(name) if name in spoken else 0)


def _rounds(turn: HandlerTurn) -> int:
    value = turn.variables.get(ROUNDS, "")
    return min(int(value), MOST_ROUNDS) if value.isdecimal() and int(value) else DEFAULT_ROUNDS


HANDLERS: dict[str, Handler] = {"hand_in": hand_in, "round_table": round_table}


def load_handlers(module: str | None) -> Loaded[Handler]:
    """The built-in handlers and those in `HANDLERS` of the named module."""
    loaded = Loaded(dict(HANDLERS))
    listed = getattr(users_module(module, loaded.problems), "HANDLERS", {})
    if not isinstance(listed, dict):
        return loaded.note(module, "HANDLERS must be a dictionary: name -> async function")
    for name, function in listed.items():
        if problem := _problem(name, function):
            loaded.note(module, problem)
        else:
            loaded.found[name] = function
    return loaded


def _problem(name: object, function: object) -> str | None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"{name!r} is not a name for a handler"
    if name in HANDLERS:
        return f"there is already a handler named {name!r}; rename yours"
    if not inspect.iscoroutinefunction(function):
        return f"the handler {name!r} is not an async function"
    return None
