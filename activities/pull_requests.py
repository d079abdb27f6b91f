"""Pull requests: a task's commits are pushed as its branch, and proposed at GitHub, Gitea or GitLab.

The credential is added in this process, on the way out: git gets it from the gateway of the sandbox, REST from the
guarded client. Both are idempotent by the branch: what an interrupted call has made is found before it is made.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from activities.egress import Fetcher
from activities.environments import OpenEnvironment
from activities.trees import Mirrors
from domain.credentials import Credential
from domain.environments import Checkout, ForgeKind, GitSource
from domain.json_object import JsonObject
from domain.sessions.session import SessionRef
from store import environments
from store.database import Pool

PAGES = 5  # of open pull requests, of 50 each, that are searched for the task's
MAX_WHY = 500  # characters of a refusal


class ForgeError(Exception):
    """It was refused; the message may be shown to a model."""


@dataclass(frozen=True)
class PullRequest:
    number: int
    url: str
    made: bool = False  # by this call


@dataclass(frozen=True)
class Repositories:
    """What this worker has to push and propose; `most`: bytes of the commits that are pushed."""

    pool: Pool
    mirrors: Mirrors
    fetcher: Fetcher
    most: int


@dataclass(frozen=True)
class Repository:
    """The repositories of a task's environment, for its tools, which name one where there are several."""

    worker: Repositories
    ref: SessionRef
    workspace_id: str
    folder: Path
    environment: OpenEnvironment

    async def push(self, named: str | None) -> tuple[str, str]:
        """The branch and the commit that it has now. Raises TreeError."""
        one = await self._find(named)
        return one.branch, await self.worker.mirrors.push(self.ref, one, self.folder, self.worker.most)

    async def open_pull_request(self, named: str | None, title: str, body: str, base: str | None) -> PullRequest:
        """The open pull request of the task's branch, made if there is none; its events reach the task from now on."""
        one = await self._find(named)
        git = self.environment.spec.sources.get(one.folder)
        if git is None:
            raise ForgeError("The environment no longer has this repository.")
        forge = self._forge(git)
        found = await forge.find(one.branch)
        if found is None:
            base = base or git.ref or await forge.default_branch()
            found = await forge.make(one.branch, base, title, body) or await forge.find(one.branch)
        if found is None:
            raise ForgeError("There is such a pull request already, but it is not among the newest open ones.")
        key = f"pull:{git.path}#{found.number}"
        names = self.environment.spec.triggers
        await environments.lead_events(self.worker.pool, self.ref.tenant, names, key, self.ref.conversation_id)
        return found

    async def _find(self, named: str | None) -> Checkout:
        tree = await environments.tree_of(self.worker.pool, self.ref.tenant, self.workspace_id)
        if tree is None:
            raise ForgeError("The workspace has no repository.")
        by_folder = {one.folder: one for one in tree.checkouts}
        if "" in by_folder:
            return by_folder[""]
        if named not in by_folder:
            raise ForgeError(f"Name the repository, by its folder: {', '.join(by_folder)}.")
        return by_folder[named]

    def _forge(self, git: GitSource) -> "_Forge":
        if git.api is None:
            raise ForgeError("The environment does not say whose REST API its host has (git.forge).")
        credential = self.environment.credential_for(git.api, first=git.credential)
        if credential is None:
            raise ForgeError(f"The environment has no credential for {git.api}.")
        return _Forge(self.worker.fetcher, git.api, git.forge or ForgeKind.GITHUB, git.path, credential)


@dataclass(frozen=True)
class _Forge:
    """One repository at a REST API. GitHub and Gitea have the same paths and fields; GitLab has its own."""

    fetcher: Fetcher
    api: str
    kind: ForgeKind
    path: str
    credential: Credential

    @property
    def _home(self) -> str:
        return f"projects/{quote(self.path, safe='')}" if self._lab else f"repos/{quote(self.path)}"

    @property
    def _list(self) -> str:
        return f"{self._home}/merge_requests" if self._lab else f"{self._home}/pulls"

    @property
    def _lab(self) -> bool:
        return self.kind is ForgeKind.GITLAB

    async def find(self, branch: str) -> PullRequest | None:
        named = quote(branch, safe="")
        if self._lab:
            query = f"state=opened&source_branch={named}"
        else:  # Gitea ignores `head`
            query = f"state=open&head={quote(self.path.partition('/')[0], safe='')}:{named}"
        for page in range(1, PAGES + 1):
            found = await self._ask("GET", f"{self._list}?{query}&page={page}&per_page=50&limit=50")
            for one in found if isinstance(found, list) else []:
                head = one["source_branch"] if self._lab else one["head"]["ref"]
                if head == branch:
                    return self._read(one)
            if not isinstance(found, list) or len(found) < 50:
                break
        return None

    async def default_branch(self) -> str:
        return str((await self._ask("GET", self._home))["default_branch"])

    async def make(self, branch: str, base: str, title: str, body: str) -> PullRequest | None:
        """None if there is one already."""
        if self._lab:
            given = {"source_branch": branch, "target_branch": base, "title": title, "description": body}
        else:
            given = {"head": branch, "base": base, "title": title, "body": body}
        made = await self._ask("POST", self._list, given)
        return self._read(made, made=True) if made is not None else None

    def _read(self, one: Mapping[str, Any], *, made: bool = False) -> PullRequest:
        number, url = ("iid", "web_url") if self._lab else ("number", "html_url")
        return PullRequest(int(one[number]), str(one[url]), made)

    async def _ask(self, method: str, path: str, body: JsonObject | None = None) -> Any:
        if self.credential.refuses(method, path):
            raise ForgeError(f"The credential {self.credential.name} may only read.")
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        headers["Authorization"] = self.credential.header(path)
        content = json.dumps(body).encode() if body is not None else b""
        answer = await self.fetcher.send(method, f"{self.api}/{path}", headers, content)
        text = answer.body.decode(errors="replace")
        if method == "POST" and answer.status in (409, 422) and "already exists" in text:
            return None
        if not 200 <= answer.status < 300:
            raise ForgeError(f"{self.api} answered {answer.status}: {text[:MAX_WHY]}")
        try:
            return json.loads(text)
        except ValueError:
            raise ForgeError(f"{self.api} answered with something that is not JSON.") from None
