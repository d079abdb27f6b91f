""""""

import base64
import json
import time
from urllib.parse import quote

import pytest

from domain.events import Progress
from domain.redaction import REDACTED, Redactor, redact, redact_json, shorten_and_redact
from domain.sessions.session import preview

KEYS = [
    "sk-ant-api03-AbCdEfGhIjKlMnOpQrStUv",
    "sk-proj-AbCdEfGhIjKlMnOpQrStUv",
    "ghp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
    "github_pat_11ABCDEFG0abcdefghijkl",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-123456789012-abcdefghijkl",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "ek_0123456789ab_" + "x" * 43,
    "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
]


@pytest.mark.parametrize("key", KEYS)
def test_keys_are_not_in_previews(key: str) -> None:
    shown = preview(f"export KEY={key} && run")
    assert key not in shown and REDACTED in shown and shown.endswith("&& run")
    assert key[12:] not in preview("x " * 142 + key)  # a key that the end of the preview would cut


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=swordfish1 x", f"password={REDACTED} x"),
        ('{"api_key": "swordfish1"}', f'{{"api_key": "{REDACTED}"}}'),
        ("Authorization: Bearer swordfish1", f"Authorization: Bearer {REDACTED}"),
        ("postgresql://ann:swordfish1@db/x", f"postgresql://ann:{REDACTED}@db/x"),
        ("read worker.py; the task is done, see https://example.org:8080/a", None),
        ("01m7h5pjrzy5zk03zj8xz0xsa9 9dab55f57c74c3cad24c323bacbbd04be4705ba6", None),
        ("token count: 12", None),
        (r'{"command": "export PASSWORD=\"swordfish1\""}', rf'{{"command": "export PASSWORD=\"{REDACTED}""}}'),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQ==\n-----END", f"{REDACTED}-----END"),
        ("task-0123456789abcdef0123 shelf_0123456789abcdef0123", None),
    ],
)
def test_named_secrets_are_redacted_and_the_rest_stays(text: str, shown: str | None) -> None:
    assert redact(text) == (text if shown is None else shown)


@pytest.mark.parametrize(
    "beginning", ["sk-", "sk_a-", "eyJ-", "eyJaaaaaaaaa.", "token ", "Bearer ", "://a:", "-----BEGIN A"]
)
def test_text_of_repeated_secret_prefixes_is_redacted_quickly(beginning: str) -> None:
    began = time.process_time()
    redact(beginning * (200_000 // len(beginning)))
    assert time.process_time() - began < 2  # a pattern that starts again at every character would take minutes


def test_keys_in_arguments_are_redacted_and_the_structure_is_kept() -> None:
    given = {
        "command": f"curl -H 'Authorization: Bearer swordfish1' -u ann:{KEYS[0]}",
        "env": [{"API_KEY": "fish", "token": 12345678, "password": "", "max_tokens": "12"}, None, True],
        KEYS[1]: 1,
    }
    assert redact_json(given) == {
        "command": f"curl -H 'Authorization: Bearer {REDACTED}' -u ann:{REDACTED}",
        "env": [{"API_KEY": REDACTED, "token": 12345678, "password": "", "max_tokens": "12"}, None, True],
        REDACTED: 1,
    }


def test_a_key_that_a_cut_would_divide_is_not_shown() -> None:
    assert (
        shorten_and_redact("x" * 90 + " " + KEYS[0], 100)
        == "x" * 90 + f" {REDACTED[:9]}… [{len(KEYS[0]) - 9} more characters]"
    )
    assert shorten_and_redact("as it is", 100) == "as it is"


SECRET = 'pa"ss/wörd+1'


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET),
        quote(SECRET),
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


def test_values_within_models_are_replaced_and_short_ones_left() -> None:
    redactor = Redactor(["s3cret", "ab"])
    assert redactor.model(Progress(message="it is s3cret, ab")).message == "it is [redacted], ab"
    assert redactor.json({"s3cret": ["s3cret", 1, None]}) == {"[redacted]": ["[redacted]", 1, None]}
    assert "s3cret" not in repr(redactor) and not Redactor(["ab"])
