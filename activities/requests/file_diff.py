"""File diffs: the change that a call would make to a file of the workspace, for the people who approve it."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import unified_diff

from domain.amounts import counted
from domain.policy.rules import canonical_path
from store import files, workspaces
from store.database import Pool
from store.workspaces import with_holes

LARGEST = 1_000_000  # bytes; larger files are not compared
MOST_CHARACTERS = 20_000  # the longest diff that is shown
CLOSELY = 1_000  # lines; in longer files everything from the first to the last difference is one change
CONTEXT = 3
NO_NEWLINE = "\n\\ No newline at end of file"


@dataclass(frozen=True)
class FileChange:
    """The change that a call would make to one file."""

    path: str
    after: Callable[
        [str | None], str | None
    ]  # takes the present text (None: no file); returns None if the call would fail


async def diff_of(pool: Pool, tenant: str, workspace_id: str, change: FileChange) -> dict[str, str]:
    """{"diff"}, or {"note"} with the reason why there is none. The file is read as the last tool left it."""
    path = canonical_path(change.path)
    _, manifest = await workspaces.get(pool, tenant, workspace_id)
    entry = manifest.get(path)
    if entry is not None and "kind" in entry:
        return {"note": f"{path} is a {entry['kind']} now, so it cannot be compared."}
    if entry is not None and (size := entry.get("length", entry["size"])) > LARGEST:
        return {"note": f"{path} has {size:,} bytes now, too many to be compared."}
    before: str | None = None
    if entry is not None:
        content = (await files.get_blobs(pool, tenant, [entry["sha256"]])).get(entry["sha256"])
        if content is None:
            return {"note": f"What {path} holds now is no longer kept, so it cannot be compared."}
        try:
            before = with_holes(entry, content).decode()
        except UnicodeDecodeError:
            return {"note": f"{path} is not text now ({entry['size']:,} bytes), so it cannot be compared."}
    after = change.after(before)
    if after is None:
        return {"note": f"As {path} is now, this call would fail and change nothing."}
    if before == after:
        return {"note": f"{path} holds exactly this already."}
    return {"diff": await asyncio.to_thread(diff, path, before, after)}


def diff(path: str, before: str | None, after: str) -> str:
    old, new = _lines(before or ""), _lines(after)
    names = ("/dev/null" if before is None else f"a/{path}", f"b/{path}")
    if max(len(old), len(new)) <= CLOSELY:  # the comparison of longer files may take minutes
        lines = list(unified_diff(old, new, *names, lineterm="", n=CONTEXT))
    else:
        lines = [f"--- {names[0]}", f"+++ {names[1]}", *_one_change(old, new)]
    return _bound_lines("\n".join(lines).split("\n"))


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    last = lines.pop()
    return [*lines, last + NO_NEWLINE] if last else lines


def _one_change(old: list[str], new: list[str]) -> Iterator[str]:
    same = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    tail = 0
    while tail < min(len(old), len(new)) - same and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    start, rest = max(0, same - CONTEXT), max(0, tail - CONTEXT)
    yield f"@@ -{start + 1},{len(old) - rest - start} +{start + 1},{len(new) - rest - start} @@"
    yield from (f" {line}" for line in old[start:same])
    yield from (f"-{line}" for line in old[same : len(old) - tail])
    yield from (f"+{line}" for line in new[same : len(new) - tail])
    yield from (f" {line}" for line in old[len(old) - tail : len(old) - rest])


def _bound_lines(lines: list[str]) -> str:
    kept: list[str] = []
    room = MOST_CHARACTERS
    for place, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            kept.append(f"[… {counted(len(lines) - place, 'more line')}]")
            break
        kept.append(line)
    return "\n".join(kept)
