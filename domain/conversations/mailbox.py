"""The mailbox: references to outcomes of subagents, and their rendering into the prompt of a continuation: quoted,
with the files that come with them."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

from domain.amounts import format_count
from domain.frozen import Frozen
from domain.policy.rules import PathError, path_parts
from domain.sessions.session import Reason, Status

# Quoting of a subagent's text, so that nobody takes it for a text of the platform or of the caller.
#
# Outcomes are put into a prompt between lines that only the platform writes: headings with a status, the separator
# before the caller's message, tags. A subagent that writes such a line could end its own block and open another. So
# these lines are quoted (`> `) and these tags begin with `&lt;`. All other text stays as it is.


_TAG = re.compile(
    r"<(?=\W{0,8}(?:task_result|system_message|checkpoint|budget|untrusted_event|check_output)\b)", re.IGNORECASE
)
# marks of a list, of emphasis or of a quotation may precede the text
_CALLER = re.compile(r"\W*+user\s+message\W*:", re.IGNORECASE)
_MARKER = re.compile(
    r"""[^\w\#]*+\#.*\[(?:completed|failed)\]               # the heading of one of several outcomes
      | .*\[(?:completed|failed)\]\s*\(session
      | \W*+async\s+subagent\s+(?:results\s*:|'.*\(session)  # the first line of an outcome
      | \W*+interrupted\s*\(.*\)\s*;
      | \W*+until\s+then\s+it\s+said\s*:
      | \W*+still\s+running\s*\(
      | \W*+\d+\s+(?:more\s+characters|earlier\s+messages)\b
      | \W*+status\s*:\W*(?:complete|error|running|launched)\b  # the head of a task's result
      | \W*+(?:task_id|agent_id|error_type)\s*:
      | \W*+subagent\b.*\(\s*reference                      # the end, or a message, of a subagent that is a tool
      | \W*+the\s+agent\s*\(\s*agent_id
      | \W*+the\s+subagent\s+did\s+not\s+finish\s*:
      | \W*+attachments\W*:
    """,
    re.IGNORECASE | re.VERBOSE,
)
_SUSPECT = re.compile(r"[<:(\[0-9]")  # every tag and every marker has one of these, unless it is in other letters
_UNSEEN = frozenset(("Cf", "Mn", "Me"))  # marks on letters too: they include variation selectors and joiners
_FILLERS = "\u115f\u1160"  # invisible, although Unicode calls them letters


def quote(text: str) -> str:
    """The same text, with every line quoted that could pass for one of the platform's."""
    if text.isascii() and not _SUSPECT.search(text):
        return text
    lines = disarm_tags(text).splitlines(keepends=True)  # at every character that is shown as a line break
    seen = [_as_seen(line) for line in lines]
    return "".join(f"> {line}" if _is_marker(seen, place) else line for place, line in enumerate(lines))


def quote_line(text: str) -> str:
    """The same text on one line, to be shown inside a line of the platform's."""
    return quote(" ".join(text.splitlines()))


def disarm_tags(text: str, tags: re.Pattern[str] = _TAG) -> str:
    """The text with every tag disarmed, including tags that appear only once invisible characters are removed."""
    found = {tag.start() for tag in tags.finditer(text)}
    if not text.isascii():
        seen = [(place, shown) for place, sign in enumerate(text) for shown in _as_seen(sign)]
        found |= {seen[tag.start()][0] for tag in tags.finditer("".join(shown for _, shown in seen))}
    return "".join("&lt;" if place in found else sign for place, sign in enumerate(text)) if found else text


def _as_seen(text: str) -> str:
    """A text without invisible characters and with wide letters as plain ones, so that neither hides a marker."""
    if text.isascii():
        return text
    # sign by sign: many marks on one letter take time by the square of their number to be put in order
    plain = "".join(unicodedata.normalize("NFKC", sign) for sign in text)
    return "".join(sign for sign in plain if unicodedata.category(sign) not in _UNSEEN and sign not in _FILLERS)


def _is_marker(lines: list[str], place: int) -> bool:
    line = lines[place]
    if _CALLER.match(line) or _MARKER.match(line):
        return True
    if "---" not in line or re.search(r"\w", line):
        return False
    rest = (lines[after] for after in range(place + 1, len(lines)))
    following = next((after for after in rest if after.strip()), "")  # a rule before the caller's message
    return bool(_CALLER.match(following))


# Attachments: files that one thread sends to another. They are copied, and each thread sees only its own paths.


ATTACHMENTS_FOLDER = "attachments"
MOST_ATTACHMENTS = 20  # files at once
MOST_ATTACHMENT_BYTES = 20_971_520  # of one file
MOST_NAME = 255  # bytes of a file's name
MOST_SUFFIX = 30  # characters that are kept when a name is shortened
_PART_OF_PATH = r"[\w./\\-]"


class AttachmentRefused(ValueError):
    """A file cannot be handed over; the text is for the model."""


class Attachment(Frozen):
    """One file: its path at the sender, its path at the receiver, and its entry in the sender's manifest."""

    given: str
    path: str
    entry: dict[str, Any]


def paths_of(value: Any) -> list[str]:
    """The paths in an argument, which may be one path or a list."""
    found = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise AttachmentRefused("Attachments must be a path or a list of paths. Nothing was sent.")
    if len(found) > MOST_ATTACHMENTS:
        raise AttachmentRefused(f"At most {MOST_ATTACHMENTS} files can be attached. Nothing was sent.")
    return list(dict.fromkeys(found))


def attach_files(given: Iterable[str], manifest: Mapping[str, Any], tag: str | None) -> list[Attachment]:
    """Look the files up in the sender's manifest, which never follows a link. `tag` names the receiver's folder. None
    means that both work in one workspace, so that the path stays the same."""
    found: list[Attachment] = []
    for path in given:
        try:
            name = "/".join(path_parts(path))
        except PathError as error:
            raise AttachmentRefused(f"{error} Nothing was sent.") from None
        entry = manifest.get(name)
        if entry is None:
            raise AttachmentRefused(f"There is no file {path!r} in your workspace. Nothing was sent.")
        if entry.get("kind") is not None:
            raise AttachmentRefused(f"{path!r} is a {entry['kind']}: only files can be attached. Nothing was sent.")
        if entry.get("length", entry.get("size", 0)) > MOST_ATTACHMENT_BYTES:
            raise AttachmentRefused(f"{path!r} is larger than {MOST_ATTACHMENT_BYTES:,} bytes. Nothing was sent.")
        target = name if tag is None else free_path(tag, name, [one.path for one in found])
        found.append(Attachment(given=path, path=target, entry=dict(entry)))
    return found


def free_path(tag: str, name: str, taken: Sequence[str]) -> str:
    """The receiver's path for a file: its bare name in a folder of this transfer, so that nothing is overwritten."""
    bare = PurePosixPath(name)
    suffix = bare.suffix if len(bare.suffix) <= MOST_SUFFIX else ""
    stem = bare.name.removesuffix(suffix).encode()
    path, number = f"{ATTACHMENTS_FOLDER}/{tag}/{bare.name}", 1
    while path in taken:
        number += 1
        end = f"-{number}{suffix}"
        path = f"{ATTACHMENTS_FOLDER}/{tag}/{stem[: MOST_NAME - len(end.encode())].decode(errors='ignore')}{end}"
    return path


def name_returned(session_id: str, names: Iterable[str]) -> list[str]:
    """The parent's paths for the files that a subagent's session leaves, in the order in which it saved them."""
    found: list[str] = []
    for name in names:
        found.append(free_path(session_id[-8:], name, found))
    return found


def path_spellings(path: str) -> list[str]:
    """The ways to write a path of a workspace in a text."""
    return [path, f"./{path}", f"/workspace/{path}"]


def rewrite_paths(value: Any, attachments: Sequence[Attachment]) -> Any:
    """Replace the sender's paths in texts by the receiver's."""
    if isinstance(value, dict):
        return {name: rewrite_paths(one, attachments) for name, one in value.items()}
    if isinstance(value, list):
        return [rewrite_paths(one, attachments) for one in value]
    if not isinstance(value, str) or not attachments:
        return value
    return replace_paths(value, {one.given: one.path for one in attachments})


def replace_paths(text: str, paths: Mapping[str, str]) -> str:
    """A text with each of these paths replaced by another, unless it is part of a longer path."""
    longest = "|".join(sorted(map(re.escape, paths), key=len, reverse=True))
    whole = rf"(?<!{_PART_OF_PATH})(?:{longest})(?!{_PART_OF_PATH}*[\w/\\-])"
    return re.sub(whole, lambda match: paths[match[0]], text) if paths else text


def list_attachments(text: str, paths: Sequence[str]) -> str:
    """A message with the list of files attached to it. The sender chose their names, which may contain line breaks."""
    return "\n".join([f"{text}\n\nAttachments:", *(f"- {quote_line(path)}" for path in paths)]) if paths else text


def manifest_of(attachments: Iterable[Attachment]) -> dict[str, Any]:
    """The entries that are added to the receiver's workspace."""
    return {one.path: one.entry for one in attachments}


MAX_RESULT = 8_000  # characters of one result in a prompt; a link leads to the rest
MAX_TOTAL = 200_000  # characters of all results of one fire, shared evenly


class ConversationStatus(StrEnum):
    OPEN = "open"
    TERMINATED = "terminated"


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The end of a subagent's session, read from its row and its messages when it is rendered. It is no model, because
    a fire may render thousands."""

    session_id: str
    name: str
    status: Status
    reason: Reason | None = None
    partial: bool = False
    committed: bool = True  # it replied at least once, if only with tool calls
    output: str | None = None  # its last reply, or the message of the tool that ended it
    typed: bool = False  # the output is its last reply as JSON
    error: str | None = None
    reference: str | None = None  # how the parent addresses it, if it is a subagent tool
    earlier: list[str] = field(default_factory=list)  # what it said before its output, oldest first
    attachments: list[str] = field(default_factory=list)  # paths of its files in the parent's workspace

    @property
    def failed(self) -> bool:
        """Whether the mailbox shows it as failed. An interrupted session that committed a reply counts as a result."""
        return self.status is Status.FAILED or (self.status is Status.CANCELLED and not self.committed)

    @property
    def failure(self) -> str:
        """Why the result is missing or incomplete."""
        text = quote(self.error) if self.error else f"ended without an answer ({self.reason})"
        if self.reason is Reason.NEEDS_INPUT:  # the parent may know the answer, or ask a person
            return f"It cannot continue without an answer to this: {text}"
        return text

    @property
    def failure_so_far(self) -> str:
        """Why the result is missing or incomplete, and the last reply until then."""
        return with_output_so_far(self.failure, self.last_reply())

    def content(self, limit: int = MAX_RESULT) -> str:
        """The text of this outcome in the mailbox: all that the subagent said, or why it failed."""
        if self.failed:
            return with_output_so_far(self.failure, self._said(limit))
        text = self._said(limit) or "(no output)"
        if self.status is Status.CANCELLED:
            return f"[Interrupted ({self.reason}); this is what it had so far.]\n{text}"
        return text

    def last_reply(self, limit: int = MAX_RESULT) -> str:
        """Its last reply, quoted and cut to `limit`; empty if there is none."""
        text = self.output if self.output and self.output.strip() else ""
        if len(text) <= limit:
            return quote(text)
        return (
            f"{quote(text[:limit])}\n[… {len(text) - limit} more characters: {rest_of_result(self.session_id, limit)}]"
        )

    def _said(self, limit: int) -> str:
        """All of its replies. If they are too long: the last reply, and as many earlier ones as fit."""
        room = limit - len(self.output or "")
        kept: list[str] = []
        for text in reversed(self.earlier):
            room -= len(text)
            if room < 0:
                break
            kept.insert(0, quote(text))
        if left := len(self.earlier) - len(kept):
            kept.insert(0, f"[… {format_count(left, 'earlier message')}: GET /sessions/{self.session_id}]")
        return "\n\n".join(text for text in [*kept, self.last_reply(limit)] if text)


def with_output_so_far(failure: str, said: str) -> str:
    return f"{failure}\n\nUntil then it said:\n{said}" if said else failure


def render_page(outcome: Outcome, offset: int) -> str:
    """One page of a long result, starting at `offset`."""
    text = outcome.output or ""
    if offset >= len(text):
        return f"The result has {len(text)} characters."
    left = len(text) - offset - MAX_RESULT
    more = (
        f"\n[… {left} more characters: {rest_of_result(outcome.session_id, offset + MAX_RESULT)}]" if left > 0 else ""
    )
    return f"{quote(text[offset : offset + MAX_RESULT])}{more}"


def render_outcomes(outcomes: list[Outcome]) -> str:
    """Render the outcomes in mailbox order, as the prompt of a continuation shows them."""
    if len(outcomes) == 1:
        [one] = outcomes
        if one.reference is not None:
            return subagent_message(one, one.reference)
        verb = "failed" if one.failed else "completed"
        return f"Async subagent '{_heading(one)}' (session: {one.session_id}) {verb}:\n{one.content()}"
    limit = min(MAX_RESULT, max(500, MAX_TOTAL // max(len(outcomes), 1)))
    return "Async subagent results:\n\n" + "\n\n".join(_block(outcome, limit) for outcome in outcomes)


def subagent_message(outcome: Outcome, reference: str) -> str:
    """The message to a parent about the end of its subagent tool: the result, or why there is none."""
    if outcome.status is Status.COMPLETED:
        result = outcome.last_reply() or "(no output)"
        text = f"Subagent (reference: {reference}) has returned the following result:\n\n{result}"
    else:
        text = f"Subagent (reference: {reference}) has reported a failure:\n\n{outcome.failure_so_far}"
    return list_attachments(text, outcome.attachments)


def caller_block(text: str) -> str:
    """The caller's own message. It is a separate content block after the outcomes, so that no outcome can imitate
    it."""
    return f"---\nUser message:\n{text}"


def _block(outcome: Outcome, limit: int) -> str:
    state, prefix = ("failed", "Error: ") if outcome.failed else ("completed", "")
    return f"## {_heading(outcome)} [{state}] (session: {outcome.session_id})\n{prefix}{outcome.content(limit)}"


def _heading(outcome: Outcome) -> str:
    return " ".join(outcome.name.split())  # the parent chose the name, which may contain line breaks


def rest_of_result(session_id: str, offset: int) -> str:
    """How a person, or an agent, can read the rest of a long result."""
    return f"GET /tasks/{session_id}/result, or async_task_result with offset {offset}"
