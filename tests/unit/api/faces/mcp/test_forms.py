"""Which form a person sees for each kind of request, and which answer a filled form gives."""

from datetime import UTC, datetime
from typing import Any

import pytest
from mcp_types import ElicitRequest

from api.faces.mcp import view
from api.faces.mcp.view import FormResponse, answer_of
from domain.agents.definition import RESULT_SCHEMA
from domain.json_schema import fits
from domain.sessions.input_request import PLAN_SCHEMA, InputRequest, OnExpiry, RequestKind, approval_schema

NOW = datetime(2026, 11, 1, tzinfo=UTC)
FLAT = {
    "type": "object",
    "properties": {"city": {"type": "string", "pattern": "^U"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city"],
}
NESTED = {"type": "object", "properties": {"cities": {"type": "array", "items": {"type": "object"}}}}


def request(kind: RequestKind, schema: dict[str, Any] | None = None, **details: Any) -> InputRequest:
    return InputRequest(
        id="r1",
        conversation_id="c",
        session_id="s",
        kind=kind,
        question="Which?",
        details=details,
        answer_schema=schema,
        deadline=NOW,
        on_expiry=OnExpiry.DENY,
        created_at=NOW,
    )


def form_of(asked: InputRequest) -> dict[str, Any]:
    """The form as it is sent."""
    return view.form_of(asked).model_dump(mode="json", by_alias=True, exclude_none=True)


APPROVAL = request(RequestKind.TOOL_APPROVAL, approval_schema(), arguments={"command": "ls"})
PLAN = request(RequestKind.PLAN_APPROVAL, approval_schema(plan=PLAN_SCHEMA), plan=["Look", "Act"])
QUESTION = request(RequestKind.CLARIFICATION, options=[])
CHOICE = request(RequestKind.CLARIFICATION, options=["red", "blue"])
OBJECT = request(RequestKind.CLARIFICATION, FLAT)
DEEP = request(RequestKind.CLARIFICATION, NESTED)
RESULT = request(RequestKind.EXTERNAL_RESULT, RESULT_SCHEMA, tool="look_up", arguments={"order": 1})
VARIABLES = request(
    RequestKind.MISSING_VARIABLES,
    {"type": "object", "properties": {"REGION": {"type": "string", "minLength": 1}}, "required": ["REGION"]},
)
ACCEPTED: list[tuple[InputRequest, set[str], dict[str, Any], Any]] = [
    (APPROVAL, {"approved", "notes"}, {"approved": True, "notes": ""}, {"approved": True}),
    (QUESTION, {"answer"}, {"answer": "green"}, "green"),
    (OBJECT, {"city", "days"}, {"city": "Ulm", "days": None}, {"city": "Ulm"}),
    (DEEP, {"answer_json"}, {"answer_json": '{"cities": [{}]}'}, {"cities": [{}]}),
    (RESULT, {"result"}, {"result": "sent"}, {"result": "sent"}),
    (VARIABLES, {"REGION"}, {"REGION": "eu"}, {"REGION": "eu"}),
]


@pytest.mark.parametrize(("asked", "fields", "content", "answer"), ACCEPTED, ids=lambda one: getattr(one, "kind", ""))
def test_form_and_its_answer(asked: InputRequest, fields: set[str], content: dict[str, Any], answer: Any) -> None:
    form = form_of(asked)
    ElicitRequest.model_validate(form)
    schema = form["params"]["requestedSchema"]
    assert schema["properties"].keys() == fields
    assert all(one["type"] in ("string", "number", "integer", "boolean") for one in schema["properties"].values())
    assert answer_of(asked, FormResponse(action="accept", content=content)) == (answer,)
    assert asked.answer_schema is None or fits(asked.answer_schema, answer)


def test_messages_show_what_is_decided_on() -> None:
    assert '"command": "ls"' in form_of(APPROVAL)["params"]["message"]
    hidden = {"command": "sh run.sh", "padding": "x" * 5_000}
    script = {"path": "run.sh", "text": "rm -rf /", "size": 8, "sha256": "0"}
    long = form_of(request(RequestKind.TOOL_APPROVAL, approval_schema(), arguments=hidden, files=[script]))
    assert "more characters are not shown" in long["params"]["message"] and "rm -rf /" in long["params"]["message"]
    assert "1. Look\n2. Act" in form_of(PLAN)["params"]["message"]
    assert form_of(CHOICE)["params"]["requestedSchema"]["properties"]["answer"]["enum"] == ["red", "blue"]


@pytest.mark.parametrize(
    ("asked", "declined"),
    [
        (APPROVAL, ({"approved": False},)),
        (RESULT, ({"error": "declined"},)),
        (QUESTION, None),
    ],
)
def test_declined_is_not_approved_and_cancelled_stays_open(asked: InputRequest, declined: Any) -> None:
    assert answer_of(asked, FormResponse(action="decline")) == declined
    assert answer_of(asked, FormResponse(action="cancel", content={"approved": True})) is None
