"""The tool edit_file: exact pieces of a file replaced by others, all of them or none."""

import asyncio
from collections.abc import Sequence

from pydantic import Field

from activities.tools.support.paths import Workspace
from activities.tools.tool import FileChange, Tool, ToolContext, ToolInput, ToolResult
from domain.amounts import format_count
from domain.policy.rules import Subject, SubjectKind
from domain.sessions.session import Effect, EffectKind

_LARGEST = 5_000_000
_MOST_EDITS = 50
_NAMED = 10  # lines that an error names
_COMPARED = 50  # lines of a text that was not found


class Edit(ToolInput):
    old: str = Field(min_length=1, max_length=200_000, description="The exact text to replace, white space included.")
    new: str = Field(max_length=200_000, description="The text to put there.")
    all: bool = Field(False, description="Replace every occurrence instead of exactly one.")


class Input(ToolInput):
    path: str = Field(min_length=1, max_length=4096, description="File, relative to the workspace.")
    edits: list[Edit] = Field(
        min_length=1,
        max_length=_MOST_EDITS,
        description="The replacements, made one after the other: each finds the file as those before it left it.",
    )


class EditError(Exception):
    """An edit does not fit the file; the message says what to do instead, for the model."""


async def run(input: Input, context: ToolContext) -> ToolResult:
    return await asyncio.to_thread(_edit, input, Workspace(context.workspace), context.again)


def _edit(input: Input, workspace: Workspace, again: bool) -> ToolResult:
    content = workspace.read(input.path, _LARGEST + 1)
    if len(content) > _LARGEST:
        return ToolResult(f"{input.path!r} is larger than {_LARGEST:,} bytes. Edit it with bash.", failed=True)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return ToolResult(f"{input.path!r} is not UTF-8 text. Edit it with bash.", failed=True)
    if again and _done_before(text, input.edits):
        return ToolResult(f"Edited {input.path} (by an earlier attempt of this call).")
    try:
        after, made = apply_edits(text, input.edits)
    except EditError as error:
        return ToolResult(f"{input.path!r} was not changed. {error}", failed=True)
    workspace.write(input.path, after.encode())
    return ToolResult(f"Edited {input.path}: {format_count(made, 'replacement')}.")


def apply_edits(text: str, edits: Sequence[Edit]) -> tuple[str, int]:
    """The text after all edits, and how many replacements that were. Raises EditError if one does not fit."""
    made = 0
    for place, edit in enumerate(edits):
        old, new = _as_in(text, edit)
        count = text.count(old)
        if count == 0 or (count > 1 and not edit.all):
            which = f"Edit {place + 1} of {len(edits)}: " if len(edits) > 1 else ""
            reason = _mark_repeats(text, old, count) if count else _missing(text, old, earlier=place > 0)
            raise EditError(which + reason)
        if len(text) + count * (len(new) - len(old)) > _LARGEST:
            raise EditError(f"The file would have more than {_LARGEST:,} characters.")
        text, made = text.replace(old, new), made + count
    return text, made


def _as_in(text: str, edit: Edit) -> tuple[str, str]:
    """The edit with the line ends of the file: read_file does not show them, so a model cannot know of CRLF."""
    ends = text.count("\n")
    if not ends or text.count("\r\n") < ends:
        return edit.old, edit.new
    return _with_crlf(edit.old), _with_crlf(edit.new)


def _with_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _mark_repeats(text: str, old: str, count: int) -> str:
    lines: list[str] = []
    start = -1
    while len(lines) < _NAMED and (start := text.find(old, start + 1)) >= 0:
        lines.append(str(text.count("\n", 0, start) + 1))
    more = " and more" if count > len(lines) else ""
    return (
        f"The text to replace occurs {format_count(count, 'time')}, from lines {', '.join(lines)}{more}. Add lines "
        "before or after it until it is unique, or set all."
    )


def _missing(text: str, old: str, *, earlier: bool) -> str:
    """Why the text is not there, as far as that can be seen, and what to do."""
    plain = "The text to replace is not in the file"
    if old.endswith("\n") and text.endswith(old.rstrip("\r\n")):
        return f"{plain}: it ends without a line end. Leave the last line end out of both texts."
    wanted = [line.strip() for line in old.splitlines() if line.strip()][:_COMPARED]
    lines = text.splitlines()
    if wanted and (found := _lines_like(lines, wanted)):
        return (
            f"{plain}, but lines {found[0]} to {found[-1]} differ from it only in white space. Copy them with "
            "read_file, without the numbers."
        )
    near = [str(number) for number, line in enumerate(lines, start=1) if wanted and wanted[0] in line][:_NAMED]
    first = f" Its first line is in {'line' if len(near) == 1 else 'lines'} {', '.join(near)}." if near else ""
    made = " An earlier edit of this call may have changed it." if earlier else ""
    return f"{plain}.{first}{made} Read the file again and copy the text exactly."


def _lines_like(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """The numbers of the first lines that are the wanted ones, without white space around them and empty lines."""
    full = [(number, line.strip()) for number, line in enumerate(lines, start=1) if line.strip()]
    for start in range(len(full) - len(wanted) + 1):
        if all(full[start + place][1] == line for place, line in enumerate(wanted)):
            return [number for number, _ in full[start : start + len(wanted)]]
    return []


def _apply_edit(input: Input, before: str | None) -> str | None:
    """The new content of the file; None if the call would fail."""
    try:
        return apply_edits(before, input.edits)[0] if before else None
    except EditError:
        return None


def _done_before(text: str, edits: Sequence[Edit]) -> bool:
    """Whether an earlier attempt made the edits and died before it could report: undone from the last to the first,
    each has left its new text. If that contains the old one, every remaining `old` must be inside a `new`."""
    for edit in reversed(edits):
        old, new = _as_in(text, edit)
        if new == "":
            if old in text:
                return False
            continue  # nobody knows where it was
        if new not in text or old in text.replace(new, ""):
            return False
        text = text.replace(new, old)
    return True


TOOL = Tool(
    name="edit_file",
    description=(
        "Replace exact pieces of text in a workspace file: several in one call, all of them or none. Each must occur "
        "exactly once unless `all` is set. Read the file first."
    ),
    input=Input,
    run=run,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.FILE,
    change=lambda input: FileChange(input.path, lambda before: _apply_edit(input, before)),
    subject=Subject(kind=SubjectKind.PATH, fields=("path",)),
    touches=(SubjectKind.PATH,),
    summary=lambda input: f"edit {input.path}" + (f" in {len(input.edits)} places" if len(input.edits) > 1 else ""),
)
