import base64
import hashlib
import json
import re
from typing import Any

import httpx2
import pytest

from api.app import create_app
from settings import ROOT


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app().openapi()


def operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_reference_resolves(document: dict[str, Any]) -> None:
    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                name = value["$ref"].removeprefix("#/components/schemas/")
                assert name in document["components"]["schemas"]
            for child in value.values():
                walk(child)
        elif isinstance(value, list):
            for child in value:
                walk(child)

    walk(document)
    assert json.dumps(document)


def test_refusals_are_documented_as_problems(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        assert operation["summary"] and operation["tags"], name
        for status, response in operation["responses"].items():
            if status.startswith("4"):
                assert "application/problem+json" in response["content"], (name, status)
        if name not in (
            "GET /healthz",
            "GET /readyz",
            "POST /hooks/{connector_id}",
            "POST /triggers/{trigger}",
        ):  # these routes need no key
            assert operation["security"] == [{"key": []}, {}], name
            assert {"401", "403", "429"} <= set(operation["responses"]), name
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_operation_ids_are_names_for_methods(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, operation in operations(document)]
    assert len(set(ids)) == len(ids)
    assert [one for one in ids if not re.fullmatch("[a-z]+(_[a-z]+)+", one)] == []


def test_core_routes_are_those_at_the_top_of_the_page(document: dict[str, Any]) -> None:
    core = [name for name, operation in operations(document) if "core" in operation["tags"]]
    top = (ROOT / "docs/api.md").read_text().split("\n## The twelve routes\n")[1].split("\n## ")[0]
    assert sorted(core) == sorted(re.findall(r"^\| `([A-Z]+ /[^`]+)` \|", top, re.MULTILINE))
    assert len(core) == 12
    assert all(len(operation["tags"]) > 1 for _, operation in operations(document) if "core" in operation["tags"])


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
