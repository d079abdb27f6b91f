"""Environments: the repository that a task's workspace begins with, and how it is prepared."""

from typing import Annotated, Self

from pydantic import BaseModel, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from domain.task import Branch, Pattern, Strict

MAX_DEPTH = 10_000


class GitSource(Strict):
    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s@?#\\]{1,2000}$")] = Field(
        description="the repository, over HTTPS; it names no user and no password"
    )
    ref: Branch | None = Field(default=None, description="a branch, a tag or a commit; null: the default branch")
    depth: int = Field(default=50, ge=0, le=MAX_DEPTH, description="how many commits of its history; 0: all")


class EnvironmentSpec(Strict):
    """The body of PUT /environments/{name}."""

    git: GitSource
    setup: Annotated[str, StringConstraints(min_length=1, max_length=20_000)] | None = Field(
        default=None, description="a shell script that runs once in the fresh tree, before the agent"
    )
    setup_hosts: list[Pattern] = Field(
        default_factory=list, max_length=100, description="hosts that the script may reach; the agent's are its own"
    )
    setup_seconds: int = Field(default=600, ge=1, le=1_800, description="after which the script is stopped")


class TreeSource(BaseModel):
    """The place of a repository, and what is wanted of it."""

    url: str | None = None
    bundle: str | None = None  # instead of an address: the id of a file that a caller uploaded, made by `git bundle`
    ref: str | None = None
    depth: int = 0

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.url is None) == (self.bundle is None):
            raise PydanticCustomError("source", "either an address or a bundle")
        return self

    @property
    def place(self) -> str:
        return self.url or self.bundle or ""


class Tree(TreeSource):
    """The commit that a workspace was made from. With the workspace's own files any worker can make it again."""

    commit: str
    branch: str  # on which the task works
