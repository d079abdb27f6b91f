"""Quoting of a subagent's text, so that nobody takes it for a text of the platform or of the caller.

Outcomes are put into a prompt between lines that only the platform writes: headings with a status, the separator before
the caller's message, tags. A subagent that writes such a line could end its own block and open another. So these lines
are quoted (`> `) and these tags begin with `&lt;`. All other text stays as it is.
"""

import re
import unicodedata

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


def quoted(text: str) -> str:
    """The same text, with every line quoted that could pass for one of the platform's."""
    if text.isascii() and not _SUSPECT.search(text):
        return text
    lines = disarm_tags(text).splitlines(keepends=True)  # at every character that is shown as a line break
    seen = [_as_seen(line) for line in lines]
    return "".join(f"> {line}" if _is_marker(seen, place) else line for place, line in enumerate(lines))


def quoted_line(text: str) -> str:
    """The same text on one line, to be shown inside a line of the platform's."""
    return quoted(" ".join(text.splitlines()))


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
    plain = unicodedata.normalize("NFKC", text)
    return "".join(sign for sign in plain if unicodedata.category(sign) not in _UNSEEN and sign not in _FILLERS)


def _is_marker(lines: list[str], place: int) -> bool:
    line = lines[place]
    if _CALLER.match(line) or _MARKER.match(line):
        return True
    if "---" not in line or re.search(r"\w", line):
        return False
    following = next((after for after in lines[place + 1 :] if after.strip()), "")  # a rule before the caller's message
    return bool(_CALLER.match(following))
