"""The vendors' own searches: the request that each API takes, and what is read of its reply."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from anthropic.types import MessageCreateParams
from openai.types.responses import ResponseCreateParams
from pydantic import TypeAdapter

from activities.model.models import Models
from activities.tools.builtin.web_search import VendorSearch
from activities.tools.tool import ToolResult
from domain.agents.models import Kind, PriceTable, Provider, Providers
from tests.support.web_server import response, web_server
from tests.unit.activities.tools.builtin.test_web_search import find
from tests.unit.activities.tools.conftest import MakeContext

ONE, TWO = "https://a.example/one", "https://b.example/two"
CLAUDE: dict[str, Any] = {
    "content": [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
        {
            "type": "web_search_tool_result",
            "content": [{"type": "web_search_result", "url": url, "title": "T"} for url in (ONE, TWO)],
        },
        {"type": "text", "text": "So ", "citations": [{"url": ONE, "title": "T", "cited_text": "it is."}]},
    ],
    "usage": {"input_tokens": 1_000_000, "output_tokens": 0, "server_tool_use": {"web_search_requests": 1}},
}
MARK = {"type": "url_citation", "url": ONE, "title": "T", "start_index": 16, "end_index": 40}
GPT: dict[str, Any] = {
    "output": [
        {"type": "reasoning", "summary": []},
        {"type": "web_search_call", "action": {"type": "search", "sources": [{"url": url} for url in (TWO, ONE)]}},
        {
            "type": "message",
            "content": [
                {"type": "output_text", "text": "Indeed.\n  it is. ([a](https://a.example))", "annotations": [MARK]}
            ],
        },
    ],
    "usage": {"input_tokens": 1_000_000, "output_tokens": 0, "input_tokens_details": {"cached_tokens": 0}},
}
FORMS: dict[Kind, tuple[str, dict[str, Any], Any, str, float]] = {
    "anthropic": ("claude-haiku-4-5", CLAUDE, MessageCreateParams, "/v1/messages", 1.01),
    "openai": ("gpt-4o", GPT, ResponseCreateParams, "/responses", 2.51),
}


class Api:
    """Keeps what it was asked, and answers with what a test gives."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.status, self.body = "200 OK", b""

    async def answer(self, head: str, body: bytes) -> bytes:
        self.asked.append((head.split()[1], json.loads(body)))
        return response(self.body, self.status, "Content-Type: application/json")


@pytest.fixture
async def api() -> AsyncIterator[tuple[Api, str]]:
    one = Api()
    async with web_server(one.answer) as address:
        yield one, f"http://{address}"


@pytest.fixture(params=FORMS)
def kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


async def search(kind: Kind, url: str, make_context: MakeContext) -> ToolResult:
    providers = Providers(default=kind, named={kind: Provider(kind=kind, base_url=url, key="key", prices=kind)})
    models = Models(providers, PriceTable(providers=providers))
    try:
        return await find(make_context, VendorSearch(models, FORMS[kind][0]))
    finally:
        await models.close()


async def test_a_search_has_the_form_of_the_api_and_its_price(
    kind: Kind, api: tuple[Api, str], make_context: MakeContext
) -> None:
    (one, url), (model, answer, form, path, cost) = api, FORMS[kind]
    one.body = json.dumps(answer).encode()
    found = await search(kind, url, make_context)
    [(asked, sent)] = one.asked
    read = TypeAdapter(form).validate_python(sent)
    assert asked == path and sent.keys() <= read.keys() and sent["model"] == model
    assert "old lights" in json.dumps(sent) and "web_search" in sent["tools"][0]["type"]
    head, *lines = found.text.split("\n")
    assert head.startswith('[search for "old lights" · ')
    by_address = {lines[place].split()[1]: lines[place + 1 : place + 3] for place in (0, 3)}
    assert by_address[ONE] == ['   "T"', '   "it is."'] and TWO in by_address
    assert found.used is not None and found.used.input_tokens == 1_000_000
    assert found.used.cost_usd == pytest.approx(cost)  # its tokens, and the fee of a search


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        ("401 No", {"error": {"type": "authentication_error", "message": "bad key"}}, "Set a valid"),
        ("400 No", {"error": {"type": "invalid_request_error", "message": "no search here"}}, "no search here"),
        ("200 OK", {"content": [{"type": "web_search_tool_result", "content": {"error_code": "unavailable"}}]}, "read"),
        ("200 OK", {"content": None, "output": None}, "could not be read"),
    ],
)
async def test_a_search_that_fails_says_why(
    kind: Kind, api: tuple[Api, str], make_context: MakeContext, status: str, body: Any, said: str
) -> None:
    one, url = api
    one.status, one.body = status, json.dumps(body).encode()
    found = await search(kind, url, make_context)
    assert found.failed and said in found.text and found.text.endswith("Nothing was found.") and found.used is None


async def test_an_endless_answer_does_not_fill_the_memory(
    kind: Kind, api: tuple[Api, str], make_context: MakeContext
) -> None:
    one, url = api
    one.body = b" " * 30_000_000 + json.dumps(FORMS[kind][1]).encode()
    found = await search(kind, url, make_context)
    assert found.failed and "could not be read" in found.text
