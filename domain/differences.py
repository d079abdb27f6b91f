"""Differences of two texts: as people know them from `diff -u`, and as numbered rows with the changed parts."""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher, unified_diff
from typing import Literal

from pydantic import BaseModel, Field

from domain.amounts import format_count

MOST_CHARACTERS = 20_000  # the longest diff that is shown
CLOSELY = 1_000  # lines; in longer files everything from the first to the last difference is one change
CONTEXT = 3
NO_NEWLINE = "\n\\ No newline at end of file"
MOST_TOKENS = 200  # of a line whose changed tokens are marked
ALIKE = 0.4  # below this a line was replaced, and its tokens are not compared
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


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
            kept.append(f"[… {format_count(len(lines) - place, 'more line')}]")
            break
        kept.append(line)
    return "\n".join(kept)


class DiffRow(BaseModel):
    """A line of a difference."""

    kind: Literal["same", "removed", "added", "file", "gap", "note"]
    before: int | None = Field(default=None, description="number of the line in the earlier text")
    after: int | None = Field(default=None, description="number of the line in the later text")
    parts: list[str] = Field(description="its text in pieces: as it was, changed, as it was, and so on")


def compare(before: str, after: str) -> list[DiffRow]:
    """The difference of two texts as rows; none if they are equal. An end of line at the end makes no difference."""
    old, new = (text if text.endswith("\n") else f"{text}\n" for text in (before, after))
    return [row for row in read_diff(diff("", old, new)) if row.kind != "file"]


def read_diff(text: str) -> list[DiffRow]:
    """A unified diff as rows, with the changed parts of lines that replace one another."""
    rows: list[DiffRow] = []
    before = after = 0  # the numbers of the next lines
    left = [0, 0]  # lines of the present hunk that are still to come: only there a sign has its meaning
    for line in text.split("\n"):
        if any(left) and line[:1] in " +-":
            kind: Literal["same", "removed", "added"] = (
                "removed" if line[:1] == "-" else "added" if line[:1] == "+" else "same"
            )
            numbers = {} if kind == "added" else {"before": before}
            numbers |= {} if kind == "removed" else {"after": after}
            rows.append(DiffRow(kind=kind, **numbers, parts=[line[1:]]))
            before, after = before + ("before" in numbers), after + ("after" in numbers)
            left = [left[0] - ("before" in numbers), left[1] - ("after" in numbers)]
        elif hunk := _HUNK.match(line):
            before, old, after, new = (int(found or 1) for found in hunk.groups())
            left = [old, new]
            rows += [DiffRow(kind="gap", parts=[line])] if rows and rows[-1].kind != "file" else []
        elif line.startswith("+++ "):
            rows.append(DiffRow(kind="file", parts=[line[4:].removeprefix("b/")]))
        elif line and not line.startswith(("--- ", "diff ", "index ")):
            rows.append(DiffRow(kind="note", parts=[line]))
    _mark_tokens(rows)
    return rows


def _mark_tokens(rows: list[DiffRow]) -> None:
    """In each run of removed lines that added lines follow, the first is compared with the first, and so on."""
    start = 0
    while start < len(rows):
        middle = next((at for at in range(start, len(rows)) if rows[at].kind != "removed"), len(rows))
        end = next((at for at in range(middle, len(rows)) if rows[at].kind != "added"), len(rows))
        for old, new in zip(rows[start:middle], rows[middle:end], strict=False):
            old.parts, new.parts = _compare_tokens(old.parts[0], new.parts[0])
        start = max(end, start + 1)


def _compare_tokens(before: str, after: str) -> tuple[list[str], list[str]]:
    old, new = _TOKEN.findall(before), _TOKEN.findall(after)
    if max(len(old), len(new)) > MOST_TOKENS:
        return [before], [after]
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    if matcher.ratio() < ALIKE:
        return [before], [after]
    parts: tuple[list[str], list[str]] = ([], [])
    for operation, i, i_end, j, j_end in matcher.get_opcodes():
        for side, tokens in zip(parts, ("".join(old[i:i_end]), "".join(new[j:j_end])), strict=True):
            changed = len(side) % 2 == 1
            if changed == (operation != "equal"):
                side.append(tokens)
            elif tokens or not side:
                side += ["", tokens] if side or operation != "equal" else [tokens]
    return parts
