"""Input requests as forms, and forms as answers. A form is a flat object of texts, numbers, booleans and choices."""

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from api.http import body
from api.http.problems import finding
from domain.amounts import counted
from domain.errors import Invalid, Refusal
from domain.json_object import JsonObject
from domain.sessions.input_request import APPROVALS, InputRequest, RequestKind

ACTIONS = ("accept", "decline", "cancel")
SHOWN = 4_000  # characters of a call's arguments, a diff or a schema
_TYPES = ("string", "number", "integer", "boolean")
# the keywords that a form may have for a field
_KEYS = ("type", "title", "description", "default", "enum", "minLength", "maxLength", "minimum", "maximum")
_APPROVAL: JsonObject = {
    "approved": {"type": "boolean", "title": "Approve"},
    "notes": {"type": "string", "title": "Notes", "description": "for the agent", "maxLength": 5_000},
}


class FormResponse(BaseModel):
    """A person's reaction to a form."""

    model_config = ConfigDict(extra="ignore")

    action: Literal["accept", "decline", "cancel"]
    content: JsonObject | None = None


def form_of(request: InputRequest) -> JsonObject:
    """The request as an `elicitation/create`."""
    properties, required = _fields(request)
    schema = {"type": "object", "properties": properties, "required": required}
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": message_of(request), "requestedSchema": schema},
    }


def message_of(request: InputRequest) -> str:
    details, parts = request.details, [request.question]
    if request.kind is RequestKind.PLAN_APPROVAL:
        parts.append("\n".join(f"{place}. {title}" for place, title in enumerate(details.get("plan", []), 1)))
    elif details.get("arguments"):
        parts.append(_bounded(json.dumps(details["arguments"], indent=2, ensure_ascii=False)))
    if isinstance(details.get("diff"), str):
        parts.append(_bounded(details["diff"]))
    for file in details.get("files", []):  # the files that the call would run
        text = file.get("text")
        parts.append(f"{file['path']}:\n{_bounded(text) if text is not None else '(too long, or not text)'}")
    if more := details.get("more_files"):
        parts.append(f"It names {counted(more['count'], 'more file')}, not shown here; look there first.")
    if rule := details.get("rule"):
        parts.append(f'Asked because of the rule: {rule["action"]} {rule["permission"]} "{rule["pattern"]}"')
    return "\n\n".join(part for part in parts if part)


def _bounded(text: str) -> str:
    """A text that is cut says so, because a person must not approve what is not shown."""
    left = len(text) - SHOWN
    return text if left <= 0 else f"{text[:SHOWN]}\n[{left:,} more characters are not shown here; look at them first]"


def answer_of(request: InputRequest, response: FormResponse) -> tuple[Any] | None:
    """The answer in a response, in a tuple because it may be null; None if the request stays open."""
    if response.action == "cancel":
        return None
    if response.action == "decline":
        if request.kind in APPROVALS:
            return ({"approved": False},)
        # a question stays open: somebody else may still answer it
        return ({"error": "declined"},) if request.kind is RequestKind.EXTERNAL_RESULT else None
    # clients send null for fields that a person left empty
    content = {name: value for name, value in (response.content or {}).items() if value is not None}
    if request.kind in APPROVALS:
        if not content.get("notes"):
            content.pop("notes", None)
        return (content,)
    properties, required = _fields(request)
    for name in required:
        if name not in content:
            raise _missing(f"/inputResponses/{request.id}/content/{name}")
    if "answer_json" in properties:
        return (_parsed(request, content["answer_json"]),)
    return (content["answer"],) if "answer" in properties else (content,)


def _fields(request: InputRequest) -> tuple[JsonObject, list[str]]:
    schema = request.answer_schema
    if request.kind in APPROVALS:
        return _APPROVAL, ["approved"]
    if request.kind is RequestKind.EXTERNAL_RESULT:
        return {"result": {"type": "string", "title": "Result"}}, ["result"]
    if schema is None:
        options = request.details.get("options")
        answer = {"type": "string", "enum": options} if options else {"type": "string", "minLength": 1}
        return {"answer": {"title": "Answer", **answer}}, ["answer"]
    if (field := _flat(schema)) is not None:
        return {"answer": {"title": "Answer", **field}}, ["answer"]
    if schema.get("type") == "object" and schema.get("properties"):
        fields = {name: _flat(one) for name, one in schema["properties"].items()}
        # a field of one of these names could be mistaken for our own
        if all(field is not None for field in fields.values()) and not {"answer", "answer_json"} & fields.keys():
            return fields, [name for name in schema.get("required", []) if name in fields]
    fits = f"JSON that fits {json.dumps(schema, ensure_ascii=False)}"[:SHOWN]
    return {"answer_json": {"type": "string", "title": "Answer as JSON", "description": fits}}, ["answer_json"]


def _flat(schema: Any) -> JsonObject | None:
    """A schema as one field; None if it cannot be one. The whole schema is checked when the answer arrives."""
    if not isinstance(schema, dict):
        return None
    enum = schema.get("enum")
    if enum is not None and not (enum and all(isinstance(one, str) for one in enum)):
        return None
    if schema.get("type", "string" if enum else None) not in _TYPES:
        return None
    return {"type": "string", **{name: schema[name] for name in _KEYS if name in schema}}


def _parsed(request: InputRequest, text: Any) -> Any:
    try:
        return body.parse_json(str(text).encode())
    except (Refusal, UnicodeError):
        pointer = f"/inputResponses/{request.id}/content/answer_json"
        raise Invalid("The answer is not valid JSON.", errors=[finding(pointer, "json", "must be JSON")]) from None


def _missing(pointer: str) -> Invalid:
    return Invalid("The form is incomplete.", errors=[finding(pointer, "missing", "this field is required")])
