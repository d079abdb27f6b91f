"""Typed output: one JSON value, alone or in a block of code; what does not fit is named with its place."""

import pytest

from domain.agents.typed_output import Misfit, typed

SCHEMA = {
    "type": "object",
    "properties": {"port": {"type": "integer"}, "names": {"type": "array", "items": {"type": "string"}}},
    "required": ["port"],
}


@pytest.mark.parametrize(
    "text",
    [
        '{"port": 1}',
        ' \n{"port": 1}\n',
        '```json\n{"port": 1}\n```',
        'Here it is:\n```\n{"port": 2}\n```\nor rather\n```json\n{"port": 1}\n```\nDone.',
    ],
)
def test_a_value_is_found(text: str) -> None:
    assert typed(SCHEMA, text) == {"port": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("The port is 1.", "not JSON"),
        ('{"port": NaN}', "not JSON"),
        ('{"port": 1} and more', "not JSON"),
        ('{"port": "1"}', "at port"),
        ('{"port": 1, "names": ["a", 2]}', "at names/1"),
        ("{}", "'port' is a required property"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_mismatch_names_its_place(text: str, said: str) -> None:
    with pytest.raises(Misfit, match=said):
        typed(SCHEMA, text)


def test_mismatch_message_is_short() -> None:
    with pytest.raises(Misfit) as caught:
        typed({"type": "integer"}, '"' + "x" * 100_000 + '"')
    assert len(str(caught.value)) < 1_000
