"""Attachments: files that one thread sends to another. They are copied, and each thread sees only its own paths."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict

from domain.conversations.quoting import quoted_line
from domain.policy.subjects import PathError, parts

FOLDER = "attachments"
MOST = 20  # files at once
MOST_BYTES = 20_971_520  # of one file
MOST_NAME = 255  # bytes of a file's name
MOST_SUFFIX = 30  # characters that are kept when a name is shortened
_PART_OF_PATH = r"[\w./\\-]"


class AttachmentRefused(ValueError):
    """A file cannot be handed over; the text is for the model."""


class Attachment(BaseModel):
    """One file: its path at the sender, its path at the receiver, and its entry in the sender's manifest."""

    model_config = ConfigDict(frozen=True)

    given: str
    path: str
    entry: dict[str, Any]


def paths_of(value: Any) -> list[str]:
    """The paths in an argument, which may be one path or a list."""
    found = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise AttachmentRefused("Attachments must be a path or a list of paths. Nothing was sent.")
    if len(found) > MOST:
        raise AttachmentRefused(f"At most {MOST} files can be attached. Nothing was sent.")
    return list(dict.fromkeys(found))


def attached(given: Iterable[str], manifest: Mapping[str, Any], tag: str | None) -> list[Attachment]:
    """Look the files up in the sender's manifest, which never follows a link. `tag` names the receiver's folder. None
    means that both work in one workspace, so that the path stays the same."""
    found: list[Attachment] = []
    for path in given:
        try:
            name = "/".join(parts(path))
        except PathError as error:
            raise AttachmentRefused(f"{error} Nothing was sent.") from None
        entry = manifest.get(name)
        if entry is None:
            raise AttachmentRefused(f"There is no file {path!r} in your workspace. Nothing was sent.")
        if entry.get("kind") is not None:
            raise AttachmentRefused(f"{path!r} is a {entry['kind']}: only files can be attached. Nothing was sent.")
        if entry.get("length", entry.get("size", 0)) > MOST_BYTES:
            raise AttachmentRefused(f"{path!r} is larger than {MOST_BYTES:,} bytes. Nothing was sent.")
        target = name if tag is None else free_path(tag, name, [one.path for one in found])
        found.append(Attachment(given=path, path=target, entry=dict(entry)))
    return found


def free_path(tag: str, name: str, taken: Sequence[str]) -> str:
    """The receiver's path for a file: its bare name in a folder of this transfer, so that nothing is overwritten."""
    bare = PurePosixPath(name)
    suffix = bare.suffix if len(bare.suffix) <= MOST_SUFFIX else ""
    stem = bare.name.removesuffix(suffix).encode()
    path, number = f"{FOLDER}/{tag}/{bare.name}", 1
    while path in taken:
        number += 1
        end = f"-{number}{suffix}"
        path = f"{FOLDER}/{tag}/{stem[: MOST_NAME - len(end.encode())].decode(errors='ignore')}{end}"
    return path


def returned_paths(session_id: str, names: Iterable[str]) -> list[str]:
    """The parent's paths for the files that a subagent's session leaves, in the order in which it saved them."""
    found: list[str] = []
    for name in names:
        found.append(free_path(session_id[-8:], name, found))
    return found


def spellings(path: str) -> list[str]:
    """The ways to write a path of a workspace in a text."""
    return [path, f"./{path}", f"/workspace/{path}"]


def rewritten(value: Any, attachments: Sequence[Attachment]) -> Any:
    """Replace the sender's paths in texts by the receiver's."""
    if isinstance(value, dict):
        return {name: rewritten(one, attachments) for name, one in value.items()}
    if isinstance(value, list):
        return [rewritten(one, attachments) for one in value]
    if not isinstance(value, str) or not attachments:
        return value
    return with_paths(value, {one.given: one.path for one in attachments})


def with_paths(text: str, paths: Mapping[str, str]) -> str:
    """A text with each of these paths replaced by another, unless it is part of a longer path."""
    longest = "|".join(sorted(map(re.escape, paths), key=len, reverse=True))
    whole = rf"(?<!{_PART_OF_PATH})(?:{longest})(?!{_PART_OF_PATH}*[\w/\\-])"
    return re.sub(whole, lambda match: paths[match[0]], text) if paths else text


def listed(text: str, paths: Sequence[str]) -> str:
    """A message with the list of files attached to it. The sender chose their names, which may contain line breaks."""
    return "\n".join([f"{text}\n\nAttachments:", *(f"- {quoted_line(path)}" for path in paths)]) if paths else text


def manifest_of(attachments: Iterable[Attachment]) -> dict[str, Any]:
    """The entries that are added to the receiver's workspace."""
    return {one.path: one.entry for one in attachments}
