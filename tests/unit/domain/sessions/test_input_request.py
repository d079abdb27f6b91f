"""Schemas of answers to input requests."""

from domain.json_object import JsonObject
from domain.json_schema import fits
from domain.sessions.input_request import approval_schema


def test_changed_arguments_are_checked_with_the_definitions_of_their_own_schema() -> None:
    tools: JsonObject = {
        "type": "object",
        "properties": {"who": {"$ref": "#/$defs/person"}},
        "required": ["who"],
        "$defs": {"person": {"type": "string"}},
    }
    schema = approval_schema(arguments=tools)
    assert fits(schema, {"approved": True}) and fits(schema, {"approved": True, "arguments": {"who": "Ann"}})
    assert not fits(schema, {"approved": True, "arguments": {"who": 1}})
    assert not fits(schema, {"approved": False, "arguments": {"who": "Ann"}})
