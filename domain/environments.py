"""Environments: the repositories that a task's workspace begins with, their setup, and what its commands have."""

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from domain.credentials import CredentialName, OwnedRules, check_host, is_bound
from domain.task import MOST_REPOSITORIES, Branch, FolderName, Pattern, Strict
from domain.triggers import TriggerName

MAX_DEPTH = 10_000
PATCH = "changes.patch"  # the artifact with all changes of a task
Script = Annotated[str, StringConstraints(min_length=1, max_length=20_000)]
ExportName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
TreePath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.@+][A-Za-z0-9_.@+/-]{0,299}$")]


class ForgeKind(StrEnum):
    GITHUB = "github"
    GITEA = "gitea"
    GITLAB = "gitlab"


class GitSource(Strict):
    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s@?#\\]{1,2000}$"), AfterValidator(check_host)] = (
        Field(description="the repository, over HTTPS; it names no user and no password")
    )
    ref: Branch | None = Field(default=None, description="a branch, a tag or a commit; null: the default branch")
    depth: int = Field(default=50, ge=0, le=MAX_DEPTH, description="how many commits of its history; 0: all")
    filter: Literal["blob:none"] | None = Field(
        default=None, description="blob:none: of files, only the contents that are checked out are fetched"
    )
    sparse: list[TreePath] = Field(default_factory=list, max_length=100, description="only these folders; empty: all")
    credential: CredentialName | None = Field(default=None, description="with which it is read and written")
    forge: ForgeKind | None = Field(
        default=None, strict=False, description="whose REST API makes pull requests; null: GitHub at github.com"
    )

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc.lower()

    @property
    def path(self) -> str:
        """The owner and the name of the repository."""
        return urlsplit(self.url).path.strip("/").removesuffix(".git")

    @property
    def api(self) -> str | None:
        """The address of the REST API."""
        if self.forge is None and self.host != "github.com":
            return None
        if self.host == "github.com":
            return "https://api.github.com"
        place = {ForgeKind.GITEA: "api/v1", ForgeKind.GITLAB: "api/v4"}.get(self.forge or ForgeKind.GITHUB, "api/v3")
        return f"{urlsplit(self.url).scheme}://{self.host}/{place}"


class NetworkMode(StrEnum):
    OFF = "off"
    ALLOWLIST = "allowlist"
    OPEN = "open"


class EnvironmentSpec(Strict):
    """The body of PUT /environments/{name}."""

    git: GitSource | None = Field(default=None, description="the repository")
    repositories: dict[FolderName, GitSource] = Field(
        default_factory=dict,
        max_length=MOST_REPOSITORIES,
        description="instead of git: several, by the folder of the workspace in which each is checked out",
    )
    setup: Script | None = Field(
        default=None, description="a shell script that runs once in the fresh tree, before the agent"
    )
    setup_hosts: list[Pattern] = Field(default_factory=list, max_length=100, description="hosts that it may reach")
    setup_seconds: int = Field(default=600, ge=1, le=1_800, description="after which the script is stopped")
    setup_inputs: list[TreePath] = Field(
        default_factory=list,
        max_length=50,
        description="files and folders on which the setup depends: with the same content, what an earlier task's setup "
        "made is taken over; empty: only at the same commit",
    )
    maintenance: Script | None = Field(default=None, description="runs where a setup was taken over, with its rights")
    variables: dict[ExportName, Annotated[str, StringConstraints(max_length=10_000, pattern=r"^[^\x00]*$")]] = Field(
        default_factory=dict, max_length=50, description="for the setup and for the agent's commands"
    )
    secrets: dict[ExportName, CredentialName] = Field(
        default_factory=dict, max_length=20, description="for the setup alone: a variable that holds a credential"
    )
    exposed: dict[ExportName, CredentialName] = Field(
        default_factory=dict,
        max_length=20,
        description="for the agent's commands, which can read it: a variable that holds a credential",
    )
    network: NetworkMode = Field(
        default=NetworkMode.OFF, strict=False, description="of the agent's commands, as far as its rules allow"
    )
    hosts: list[Pattern] = Field(default_factory=list, max_length=100, description="those of an allowlist")
    credentials: list[CredentialName] = Field(
        default_factory=list, max_length=20, description="besides the repository's own: used for their hosts"
    )
    triggers: list[TriggerName] = Field(
        default_factory=list,
        max_length=10,
        description="those whose events with the key pull:OWNER/NAME#NUMBER continue the task of that pull request",
    )

    @model_validator(mode="after")
    def _useful(self) -> Self:
        if (self.git is None) == (not self.repositories):
            raise PydanticCustomError("needs", "an environment has either git or repositories")
        if bool(self.hosts) != (self.network is NetworkMode.ALLOWLIST):
            raise PydanticCustomError("needs", "hosts belong to the network allowlist, and it needs some")
        if any(self.locate(one)[0] not in self.sources for one in self.setup_inputs):
            raise PydanticCustomError("needs", "setup_inputs begin with the folder of a repository")
        return self

    def unusable_credentials(self, known: Mapping[str, OwnedRules]) -> dict[str, str]:
        """Why one that is named cannot be used, by its name; `known`: those that a task would find."""
        read = {*self.secrets.values(), *self.exposed.values()}
        found = {name: "there is no such credential" for name in self.named_credentials if name not in known}
        found |= {
            name: "it is bound to hosts, and only one of the tenant is given as a variable then"
            for name in read & known.keys()
            if not known[name].may_be_read
        }
        for one in self.sources.values():
            own = known.get(one.credential or "")
            if own is not None and not is_bound(own.rules, one.url):
                found[own.name] = "it is not bound to the host of the repository"
        return found

    @property
    def named_credentials(self) -> list[str]:
        return list(dict.fromkeys([*self.used_credentials, *self.secrets.values(), *self.exposed.values()]))

    @property
    def sources(self) -> dict[str, GitSource]:
        """By folder; a single one is at the top of the workspace."""
        return {"": self.git} if self.git is not None else self.repositories

    @property
    def used_credentials(self) -> list[str]:
        """Those that requests to their hosts get."""
        own = [one.credential for one in self.sources.values() if one.credential]
        return list(dict.fromkeys([*own, *self.credentials]))

    def locate(self, path: str) -> tuple[str, str]:
        """The folder of the repository in which a path of the workspace is, and its path there."""
        folder, _, rest = ("", "", path) if self.git is not None else path.partition("/")
        return folder, rest

    def setup_key(self, inputs: str) -> str:
        """What a setup made is the same for the same key; `inputs` are the digests of what it depends on."""
        made_of = self.model_dump_json(include={"setup", "variables", "secrets", "setup_hosts"})
        places = "\n".join(f"{folder}={one.url}" for folder, one in sorted(self.sources.items()))
        return hashlib.sha256(f"{places}\n{made_of}\n{inputs}".encode()).hexdigest()


class TreeSource(BaseModel):
    """The place of a repository, and what is wanted of it."""

    url: str | None = None
    bundle: str | None = None  # instead of an address: the id of a file that a caller uploaded, made by `git bundle`
    ref: str | None = None
    depth: int = 0
    filter: str | None = None
    sparse: list[str] = Field(default_factory=list)
    credential: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.url is None) == (self.bundle is None):
            raise PydanticCustomError("source", "either an address or a bundle")
        return self

    @property
    def place(self) -> str:
        return self.url or self.bundle or ""


class Checkout(TreeSource):
    """A repository at a commit."""

    folder: str = ""  # of the workspace; empty: its top
    commit: str
    branch: str  # on which the task works

    @property
    def prefix(self) -> str:
        """What its paths begin with in the workspace."""
        return f"{self.folder}/" if self.folder else ""


class Tree(BaseModel):
    """What a workspace was made from. With the workspace's own files any worker can make it again."""

    checkouts: list[Checkout]
    set_up: bool = False  # the setup has run, or what another task's made was taken over
    setup: str | None = None  # its key, if other tasks may take over what it made
    setup_version: int = 0  # of the workspace, with what it made
