"""Known secret values are removed from every text, in each of the usual encodings."""

import base64
import json
from urllib.parse import quote

import pytest

from domain.events import Progress
from domain.redaction import Redactor

SECRET = 'pa"ss/wörd+1'


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        quote(SECRET),
        quote(SECRET, safe=""),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        SECRET.encode().hex(),
        repr([SECRET]),
    ],
)
def test_value_is_replaced_in_the_usual_encodings(form: str) -> None:
    text = Redactor([SECRET]).text(f"before {form} after")
    assert "[redacted]" in text and form not in text and text.startswith("before ") and text.endswith(" after")


def test_lines_of_a_long_key_are_replaced_one_by_one() -> None:
    redactor = Redactor(["-----BEGIN-----\nAAAABBBBCCCCDDDD\n-----END-----"])
    assert redactor.text("a AAAABBBBCCCCDDDD b") == "a [redacted] b"


def test_longer_value_is_replaced_before_one_that_it_contains() -> None:
    assert Redactor(["token", "token-of-ann"]).text("token-of-ann, token") == "[redacted], [redacted]"


def test_values_within_models_are_replaced_and_short_ones_left() -> None:
    redactor = Redactor(["s3cret", "ab"])
    assert redactor.model(Progress(message="it is s3cret, ab")).message == "it is [redacted], ab"
    assert redactor.json({"s3cret": ["s3cret", 1, None]}) == {"[redacted]": ["[redacted]", 1, None]}
    assert "s3cret" not in repr(redactor) and not Redactor(["ab"])
