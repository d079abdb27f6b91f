import base64
import hashlib
import re

import httpx2
import pytest


@pytest.mark.parametrize("page", ["/docs", "/redoc"])
async def test_documentation_pages_load_nothing_from_other_hosts(api: httpx2.AsyncClient, page: str) -> None:
    shown = (await api.get(page)).text
    used = re.findall(r'<(?:script|link)[^>]* (?:src|href)="([^"]+)"', shown)
    assert any(name.endswith(".js") for name in used)
    for name in used:
        assert (await api.get(name)).is_success, name


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/docs/oauth2-redirect", "/openapi.json", "/tasks", "/nowhere"])
async def test_responses_cannot_be_framed_and_run_only_their_own_scripts(api: httpx2.AsyncClient, path: str) -> None:
    answer = await api.get(path)
    assert answer.headers["x-frame-options"] == "DENY"
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    inline = re.findall(r"<script>(.*?)</script>", answer.text, re.DOTALL)
    hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in inline}
    assert bool(inline) is (path.startswith("/docs"))
    allowed = set(policy.get("script-src", "").split())
    assert allowed == ({"'self'", *hashes} if path.startswith(("/docs", "/redoc")) else set())
