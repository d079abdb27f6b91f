"""Subjects: the targets of a tool call, read from its arguments, as permission rules match them."""

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from httpx2 import URL, InvalidURL
from pydantic import BaseModel, ConfigDict

from domain.policy.commands import commands_in

MOUNT = "/workspace"  # where commands see the workspace; accepted from the model as a prefix
MAX_DEPTH = 40


class SubjectKind(StrEnum):
    NAME = "name"  # the text itself, as of an agent
    COMMAND = "command"
    PATH = "path"
    HOST = "host"


class Subject(BaseModel):
    """Which arguments rules match on, and how to read them. It is data and not code, so that any process can judge a
    call by the same rules after a person has changed its arguments."""

    model_config = ConfigDict(frozen=True)

    kind: SubjectKind = SubjectKind.NAME
    fields: tuple[str, ...] = ()  # texts or lists of texts; for NAME and COMMAND the first that is given counts
    fixed: str | None = None  # whatever the arguments: the host of a tool that has only one

    def value(self, arguments: Mapping[str, Any]) -> Any:
        return next((value for name in self.fields if (value := arguments.get(name))), "")

    def of(self, arguments: Mapping[str, Any]) -> list[str]:
        """All subjects of a call. Each of them must be allowed."""
        if self.fixed is not None:
            return [self.fixed]
        given = [value for name in self.fields if (value := arguments.get(name))]
        if self.kind in (SubjectKind.NAME, SubjectKind.COMMAND):
            given = given[:1]
        values = [one for value in given for one in (value if isinstance(value, list | tuple) else [value])]
        return [subject for value in values for subject in self._read(value)] or [""]

    def _read(self, value: Any) -> list[str]:
        if not isinstance(value, str):
            return [""]
        if self.kind is SubjectKind.COMMAND:
            return commands_in(value)
        if self.kind is SubjectKind.PATH:
            return [named(value)]
        return [host_of(value) if self.kind is SubjectKind.HOST else value]


def subjects_of(subject: Subject | None, arguments: Mapping[str, Any]) -> list[str]:
    return subject.of(arguments) if subject is not None else [""]


def host_of(url: str) -> str:
    """The canonical name of a URL's host or of a bare host, by which rules know it; empty if it is neither."""
    try:
        return (URL(url if "//" in url else f"//{url}").host or "").lower().rstrip(".")
    except (InvalidURL, ValueError):
        return ""


class PathError(Exception):
    """A path cannot be used; the message explains why, for the model."""


def parts(path: str) -> tuple[str, ...]:
    """The folders and the name on the way from the workspace to `path`; empty for the workspace itself."""
    if "\0" in path:
        raise PathError("The path contains a NUL character.")
    if path == MOUNT or path.startswith(MOUNT + "/"):
        path = path[len(MOUNT) :].lstrip("/") or "."
    if path.startswith("/"):
        raise PathError(f"{path!r} is absolute. Give a path relative to the workspace.")
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    if ".." in names:
        raise PathError(f"{path!r} contains '..'. Only paths inside the workspace can be used.")
    if len(names) > MAX_DEPTH:
        raise PathError(f"The path has more than {MAX_DEPTH} folders.")
    for name in names:
        try:
            size = len(os.fsencode(name))
        except UnicodeEncodeError:
            raise PathError("The path contains characters that no file name can have.") from None
        if size > 255:
            raise PathError("A name in the path is longer than 255 bytes.")
    return names


def named(path: str) -> str:
    """The canonical form of a path, by which rules know it; a path that cannot be used stays as it is."""
    try:
        return "/".join(parts(path)) or "."
    except PathError:
        return path
