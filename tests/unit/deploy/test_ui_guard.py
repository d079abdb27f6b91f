"""Which requests reach the Temporal Web UI."""

import pytest

from deploy.ui_guard import refusal


@pytest.mark.parametrize(
    ("host", "origin", "passes"),
    [
        ("127.0.0.1:8233", None, True),
        ("localhost:8233", None, True),
        ("[::1]:8233", None, True),
        ("127.0.0.1:8233", "http://127.0.0.1:8233", True),
        ("", None, False),
        ("rebound.example:8233", None, False),
        ("127.0.0.1.nip.io:8233", None, False),
        ("127.0.0.1:8233", "https://evil.example", False),
        ("127.0.0.1:8233", "http://127.0.0.1:3000", False),
        ("127.0.0.1:8233", "null", False),
    ],
)
def test_host_and_origin_decide(host: str, origin: str | None, passes: bool) -> None:
    assert (refusal(host, origin) is None) is passes
