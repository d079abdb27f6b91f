"""Real clients of the compatible APIs, with their strictest validation."""

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from openai import AsyncOpenAI

from store import keys
from store.keys import Right
from tests.support.stack import Stack

THINKER: dict[str, Any] = {
    "name": "thinker",
    "description": "Thinks.",
    "tools": ["bash"],
    "thinking_tokens": 1_024,
    "prompt": "Think.",
}
RETRIES = 8  # enough for a server that restarts


async def key_of(stack: Stack, tenant: str, *rights: Right) -> str:
    _, secret = await keys.create(stack.pool, tenant, "face", rights or list(Right))
    return secret


def openai_client(stack: Stack, secret: str) -> AsyncOpenAI:
    return AsyncOpenAI(
        base_url=f"{stack.url}/v1",
        api_key=secret,
        max_retries=RETRIES,
        timeout=90,
        _strict_response_validation=True,
    )


@pytest_asyncio.fixture(scope="session")
async def own_key(stack: Stack) -> str:
    assert (await stack.http.put("/agents/thinker", json=THINKER)).is_success
    return await key_of(stack, "default")


@pytest_asyncio.fixture(scope="session")
async def client(stack: Stack, own_key: str) -> AsyncIterator[AsyncOpenAI]:
    async with openai_client(stack, own_key) as client:
        yield client
