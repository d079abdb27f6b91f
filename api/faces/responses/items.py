"""The items of `input`: messages, results of the caller's tools, approvals, and output that clients send back."""

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.faces.responses.errors import BadParameter
from api.faces.responses.ids import without_prefix
from domain.json_object import JsonObject

# each item becomes a message or a lookup in the database
MOST_ITEMS = 1_000
# parts of earlier output that are ignored, because the task's own record has them
ECHOED = frozenset({"reasoning", "mcp_call", "mcp_list_tools", "mcp_approval_request"})


class InputItem(BaseModel):
    """Clients send items back as they received them, so extra fields are allowed."""

    model_config = ConfigDict(extra="ignore", strict=True)


class TextPart(InputItem):
    type: Literal["input_text", "output_text", "text", "summary_text"]
    text: str


class InputMessage(InputItem):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        return text_of(self.content)


class FunctionCallItem(InputItem):
    call_id: str
    name: str
    arguments: str


class CallOutput(InputItem):
    call_id: str
    output: str | list[TextPart]


class ApprovalAnswer(InputItem):
    approval_request_id: str
    approve: bool
    reason: str | None = Field(default=None, max_length=5_000)


_KINDS: dict[str, type[InputItem]] = {
    "message": InputMessage,
    "function_call": FunctionCallItem,
    "function_call_output": CallOutput,
    "mcp_approval_response": ApprovalAnswer,
}


@dataclass
class ParsedInput:
    """The content of the items."""

    instructions: list[str] = field(default_factory=list)  # of system and developer messages
    past: list[tuple[str, str]] = field(default_factory=list)  # role and text of earlier messages
    new: list[str] = field(default_factory=list)  # the user's messages after that
    answers: dict[str, Any] = field(default_factory=dict)  # by input request
    where: dict[str, str] = field(default_factory=dict)  # the parameter that each answer came from
    texts: set[str] = field(default_factory=set)  # answers that `past` has as text too, with their calls

    def end_with_message(self) -> None:
        """Let the last results be what the user says, if the user said nothing after them."""
        if not self.new:
            while self.past and self.past[-1][0] == "user":
                self.new.insert(0, self.past.pop()[1])


def text_of(content: str | list[TextPart]) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def parse(given: str | list[JsonObject], *, continues: bool) -> ParsedInput:
    """`continues`: the history is known, so every message is new; otherwise only those after the last reply are."""
    if isinstance(given, str):
        return ParsedInput(new=[given])
    if len(given) > MOST_ITEMS:
        raise BadParameter("input", f"The input may have {MOST_ITEMS} items.", "array_above_max_length")
    found, names = ParsedInput(), dict[str, str]()
    for place, item in enumerate(given):
        match parsed := _parsed(item, f"input[{place}]"):
            case InputMessage(role="system" | "developer"):
                found.instructions.append(parsed.text)
            case InputMessage(role="user"):
                found.new.append(parsed.text)
            case InputMessage():
                _reply(found, parsed.text, continues)
            case None:
                _reply(found, "", continues)
            case FunctionCallItem():
                names[parsed.call_id] = parsed.name
                _reply(found, called(parsed.name, parsed.arguments), continues)
            case CallOutput():
                _result(found, parsed, names, f"input[{place}].call_id", continues)
            case ApprovalAnswer():
                request_id = _request("mcpr", parsed.approval_request_id, f"input[{place}].approval_request_id")
                note = {"notes": parsed.reason} if parsed.reason else {}
                found.answers[request_id] = {"approved": parsed.approve, **note}
                found.where[request_id] = f"input[{place}].approval_request_id"
    return found


def _parsed(item: JsonObject, where: str) -> InputItem | None:
    kind = item.get("type", "message" if "role" in item else None)
    if kind in ECHOED:
        return None
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise BadParameter(f"{where}.type", "Items of this type are not supported here.", "unsupported_value")
    try:
        return model.model_validate(item)
    except ValidationError as error:
        # without the input: refusals never repeat what the caller sent
        entry = error.errors(include_url=False, include_input=False)[0]
        place = next((str(part) for part in entry["loc"] if isinstance(part, str) and part in item), "")
        missing = str(entry["loc"][0]) if entry["type"] == "missing" else ""
        named = ".".join(part for part in (where, place or missing) if part)
        raise BadParameter(named, f"{named} is not valid here: {entry['msg']}.") from None


def _reply(found: ParsedInput, text: str, continues: bool) -> None:
    """Move the agent's earlier reply, and the user's messages before it, to the past."""
    if continues:
        return
    found.past += [("user", one) for one in found.new]
    found.new = []
    if text.strip():
        found.past.append(("assistant", text))


def _result(found: ParsedInput, given: CallOutput, names: dict[str, str], where: str, continues: bool) -> None:
    """A result that belongs to a call in the input may also be of another service's call: it is read as text then."""
    request_id, text = without_prefix("call", given.call_id), text_of(given.output)
    name = names.get(given.call_id)
    if request_id is None and name is None:
        raise unknown_call(where)
    if name is not None and not continues:
        found.past.append(("user", returned(name, text)))
    elif name is not None and request_id is None:
        found.new.append(returned(name, text))
    if request_id is not None:
        found.answers[request_id] = {"result": text}
        found.where[request_id] = where
        found.texts |= {request_id} if name is not None and not continues else set()


def called(name: str, arguments: str) -> str:
    """A call of the past, as the model reads it."""
    return f"(I called {name} with {arguments}.)"


def returned(name: str, text: str) -> str:
    return f"(Result of {name}: {text})"


def _request(prefix: str, given: str, where: str) -> str:
    request_id = without_prefix(prefix, given)
    if request_id is None:
        raise unknown_call(where)
    return request_id


def unknown_call(where: str) -> BadParameter:
    return BadParameter(where, "No call of this task has this id.", "unknown_call")
