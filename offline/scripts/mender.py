"""The mender: finds the function that a failing Python test calls, tries small changes, and hands in a patch. The coder
finds and mends in the same way."""

import re
import shlex
from collections.abc import Generator, Iterator
from typing import NamedTuple

from offline.markers import Marker, without_markers
from offline.reply import Replies, Reply, ToolUse
from offline.scripts.demo import Hit, bash, format_count, gist, hits_in, lines_in, progress, read_file, save, search
from offline.transcript import CallResult, Transcript

MOST_ATTEMPTS = 12
DEFAULT_COMMAND = "python3 -m unittest"
COMMAND = re.compile(r"`([^`\n]+)`")
_ERROR = re.compile(r"^\w+Error: .+$", re.MULTILINE)
_CALLED = re.compile(r"\b([a-z_]\w*)\(")
_SWAPS: tuple[tuple[str, str], ...] = (
    *((" - ", " + "), (" + ", " - "), (" < ", " <= "), (" > ", " >= "), (" <= ", " < "), (" >= ", " > ")),
    *((" == ", " != "), ("min(", "max("), ("max(", "min("), ("[1:]", ""), (" or ", " and "), (" and ", " or ")),
)


class Cause(NamedTuple):
    """The function that the failing test calls."""

    path: str
    cause: str
    suspect: Hit
    page: CallResult


class Failed(NamedTuple):
    """There is no change; the answer that says why."""

    text: str


def replies(transcript: Transcript, marker: Marker) -> Replies:
    named = COMMAND.search(without_markers(transcript.request))
    command = named[1] if named else DEFAULT_COMMAND
    _, ran = yield Reply(text="The tests fail. I run them here first.", calls=(progress("Diagnose", 10), bash(command)))
    if not ran.is_error:
        yield Reply(text="The tests pass here; there is nothing to mend.")
        return
    found = yield from find_cause(ran)
    if isinstance(found, Failed):
        yield Reply(text=found.text)
        return
    yield Reply(text=f"It is in {found.path}.", calls=(bash(f"cp {shlex.quote(found.path)} .before"),))
    done = yield from try_changes(found, command)
    if isinstance(done, Failed):
        yield Reply(calls=(bash("rm -f .before"),))
        yield Reply(text=done.text)
        return
    yield from _hand_in(found.path, found.cause, done, command)


def find_cause(ran: CallResult) -> Generator[Reply, list[CallResult], Cause | Failed]:
    errors = _ERROR.findall(ran.text)
    cause = errors[-1] if errors else gist(ran)
    called = sorted({name for line in ran.text.splitlines() if "assert" in line for name in _CALLED.findall(line)})
    [found] = yield Reply(text=f"{cause}.", calls=(search(rf"^\s*def ({'|'.join(called) or 'main'})\b"),))
    suspects = [hit for hit in hits_in(found) if "test" not in hit.path]
    if not suspects:
        return Failed(f"I could not mend it. The tests say: {cause}. No function that they call is in the project.")
    [page] = yield Reply(calls=(read_file(suspects[0].path),))
    return Cause(suspects[0].path, cause, suspects[0], page)


def try_changes(found: Cause, command: str) -> Generator[Reply, list[CallResult], str | Failed]:
    """Small changes, one after the other, until the tests pass; those that do not help are undone. What was changed."""
    tried = 0
    for old, new, what in _changes(lines_in(found.page), found.suspect):
        if tried == MOST_ATTEMPTS:
            break
        tried += 1
        _, tested = yield Reply(text=f"Trying: {what}.", calls=(_edit(found.path, old, new), bash(command)))
        if not tested.is_error:
            return what
        yield Reply(text="That is not it.", calls=(_edit(found.path, new, old),))
    return Failed(
        f"I could not mend it. The tests say: {found.cause}."
        f" I tried {format_count(tried, 'change')} in {found.path} and took them back."
    )


def _hand_in(path: str, cause: str, what: str, command: str) -> Replies:
    labels = f"--label {shlex.quote(f'a/{path}')} --label {shlex.quote(f'b/{path}')}"
    patch = f"diff -u {labels} .before {shlex.quote(path)} > fix.patch; rm -f .before; cat fix.patch"
    yield Reply(text="The tests pass.", calls=(bash(patch),))
    yield Reply(calls=(save("fix.patch", f"Mends {path}: {what}", "code"), progress("Mended", 100)))
    yield Reply(
        text=f"Cause: {cause}. Change in {path}: {what}. `{command}` passes now; the change is in fix.patch, which"
        " `patch -p1` applies."
    )


def _changes(lines: list[Hit], start: Hit) -> Iterator[tuple[str, str, str]]:
    """Small changes to a function, each as the text from its first line to the changed one, before and after."""
    body = [line for line in lines if line.line >= start.line]
    for place, line in enumerate(body):
        if place and line.text and not line.text[0].isspace():
            return  # the next function begins
        for old, new in _SWAPS:
            if place and old in line.text:
                before = [one.text for one in body[: place + 1]]
                after = [*before[:-1], line.text.replace(old, new, 1)]
                yield (
                    "\n".join(before),
                    "\n".join(after),
                    f"line {line.line}, `{line.text.strip()[:80]}`: {old.strip()} → {new.strip() or 'nothing'}",
                )


def _edit(path: str, old: str, new: str) -> ToolUse:
    return ToolUse("edit_file", {"path": path, "edits": [{"old": old, "new": new}]})
