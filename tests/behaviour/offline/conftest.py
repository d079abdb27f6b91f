"""The offline model on a loopback port, with the real SDK as its client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
import pytest
import uvicorn
from anthropic import AsyncAnthropic

from offline.server import create_app, listen

MODEL = "claude-haiku-4-5"
LIST_FILES = {
    "name": "list_files",
    "description": "List files.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
}


@pytest.fixture(scope="session")
async def url() -> AsyncIterator[str]:
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(create_app(), log_level="critical", timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:  # noqa: ASYNC110 - the server has no event to wait for
        await asyncio.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    await serving


@pytest.fixture(scope="session")
async def client(url: str) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=url, api_key="any", max_retries=0, timeout=10) as client:
        yield client


Ask = Callable[..., Awaitable[Any]]


@pytest.fixture
def ask(client: AsyncAnthropic) -> Ask:
    """Stream one answer to a text or to messages; return the final message."""

    async def _ask(content: Any, **options: Any) -> Any:
        messages: Any = [{"role": "user", "content": content}] if isinstance(content, str) else content
        options = {"model": MODEL, "max_tokens": 4_096, "tools": [LIST_FILES], **options}
        async with client.messages.stream(messages=messages, **options) as stream:
            return await stream.get_final_message()

    return _ask


Requests = Callable[[str], Awaitable[list[dict[str, Any]]]]


@pytest.fixture
def requests(url: str) -> Requests:
    async def _requests(contains: str) -> list[dict[str, Any]]:
        async with httpx2.AsyncClient() as http:
            answer = await http.get(f"{url}/_requests", headers={"x-api-key": "k"}, params={"contains": contains})
        found: list[dict[str, Any]] = answer.json()["requests"]
        return found

    return _requests


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")
