"""A repository with a real server, and an agent with the tools for its pull requests."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio

from domain.ids import new_id
from store import keys
from store.keys import Right
from tests.support.git_server import Forge, git, make_repository, serve_repositories
from tests.support.launch import TESTER
from tests.support.stack import Stack

FILES = {
    "app.py": "print('one')\n",
    "old.txt": "old\n",
    "lib/deep.txt": "deep\n",
    "docs/guide.txt": "x\n",
    ".gitignore": "ignored.txt\n",
}
TOOLS = [*TESTER["tools"], "push_branch", "open_pull_request"]
COMMITTER = {**TESTER, "name": "committer", "may_ask": True, "tools": TOOLS}


@dataclass
class Origin:
    url: str
    folder: Path
    forge: Forge
    place: str  # of its server

    def branches(self) -> list[str]:
        return git(self.folder, "branch", "--format=%(refname:short)").splitlines()


@pytest.fixture
def origin(stack: Stack, tmp_path: Path) -> Iterator[Origin]:
    folder, forge = tmp_path / "served/shop", Forge()
    make_repository(folder, FILES)
    git(folder, "config", "http.receivepack", "true")
    port = int(stack.settings.allow_private_hosts[0].rpartition(":")[2])
    with serve_repositories(tmp_path / "served", port, forge) as url:
        yield Origin(f"{url}/shop", folder, forge, url)


@pytest_asyncio.fixture
async def committer(stack: Stack) -> str:
    answer = await stack.http.put("/agents/committer", json=COMMITTER)
    assert answer.is_success, answer.text
    return "committer"


async def define(stack: Stack, url: str, git: dict[str, object] | None = None, **more: object) -> str:
    name = f"e-{new_id()}"
    answer = await stack.http.put(f"/environments/{name}", json={"git": {"url": url, **(git or {})}, **more})
    assert answer.status_code == 201, answer.text
    return name


async def artifact(stack: Stack, task_id: str, name: str) -> bytes:
    [found] = [one for one in (await stack.result(task_id))["artifacts"] if one["name"] == name]
    return (await stack.http.get(found["url"])).content


async def store_credential(
    stack: Stack, origin: Origin, *, owner: httpx2.AsyncClient | None = None, name: str = "", **more: object
) -> str:
    """The token that the server of the repository asks for from now on, as a credential; `owner`: of this user."""
    name, origin.forge.token = name or f"c-{new_id()}", f"token-{new_id()}"
    body = {"secret": origin.forge.token, "hosts": [origin.place], **more}
    http, scope = owner or stack.http, "user" if owner else "tenant"
    answer = await http.put(f"/credentials/{name}", params={"scope": scope}, json=body)
    assert answer.status_code == 201, answer.text
    return name


@asynccontextmanager
async def user(stack: Stack, *rights: Right, tenant: str = "default") -> AsyncIterator[Stack]:
    """The stack as the holder of a key sees it; by default one that may submit and read."""
    _, secret = await keys.create(stack.pool, tenant, "user", rights or (Right.SUBMIT, Right.READ))
    async with httpx2.AsyncClient(
        base_url=stack.url, headers={"Authorization": f"Bearer {secret}"}, timeout=30
    ) as client:
        seen = copy(stack)
        seen.http = client
        yield seen
