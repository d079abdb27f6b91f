"""Shared by the demo scripts: a plan that can change, the tool calls they make, and reading results."""

import re
from collections.abc import Generator
from dataclasses import dataclass, field

from offline.markers import without_markers
from offline.reply import Reply, ToolUse
from offline.transcript import CallResult, Transcript

_FOOTER = re.compile(r"^\[[^\n]*; sandbox: \S+\]\s*\Z", re.MULTILINE)
_ERROR_LINES = (
    re.compile(r"^(FAILED|ERROR|E ) |\w+Error\b|denied|not found|No module"),
    re.compile(r"error|cannot|fail", re.IGNORECASE),
)
_HIT = re.compile(r"^(?:\./)?([^:\n]+):(\d+):\s?(.*)$")
_SIZE = re.compile(r"\s+\([\d,]+ bytes\)$")
_CHANGED_STEP = re.compile(r"^\d+\. (.+)$", re.MULTILINE)
_NUMBERED = re.compile(r"^ *(\d+)[ \t]{1,2}(.*)$")
_WRITTEN = re.compile(r"(report|review|summary)(-[\w-]+)?\.md|reports/.*")
_WORD = re.compile(r"[A-Za-z][A-Za-z_-]{3,}")
_COMMON = (
    "about above after also answer before being between briefly check code could does each explain file files find "
    "focus from give have into just know like list look make many more most much need only other over path please "
    "question read report research review should some summary tell than that their them then there these they this "
    "those through told using very want what when where which while will with workspace would write your"
)


@dataclass
class DemoPlan:
    """The steps as update_plan takes them; the first open one is in progress."""

    titles: list[str]
    finished: list[str] = field(default_factory=list)  # done or skipped, for each finished step

    def tick(self) -> ToolUse:
        self.finished.append("done")
        return self.call()

    def change(self, *titles: str, reason: str, done: bool = False) -> ToolUse:
        """Skip the step in progress unless it is done, and replace all later steps with these."""
        self.titles = [*self.titles[: len(self.finished) + 1], *titles]
        self.finished.append("done" if done else "skipped")
        return self.call(reason)

    def call(self, reason: str | None = None) -> ToolUse:
        states = [*self.finished, "in_progress", *["pending"] * len(self.titles)][: len(self.titles)]
        steps = [{"title": title, "status": state} for title, state in zip(self.titles, states, strict=True)]
        return ToolUse("update_plan", {"steps": steps, "reason": reason} if reason else {"steps": steps})


@dataclass(frozen=True)
class Hit:
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"`{self.text.strip()[:160]}` [{self.path}:{self.line}]"


def list_files(path: str = ".") -> ToolUse:
    return ToolUse("list_files", {"path": path, "recursive": True})


def read_file(path: str) -> ToolUse:
    return ToolUse("read_file", {"path": path})


def write_file(path: str, content: str) -> ToolUse:
    return ToolUse("write_file", {"path": path, "content": content})


def search(pattern: str, path: str = ".") -> ToolUse:
    return ToolUse("search_files", {"pattern": pattern, "path": path})


def bash(command: str) -> ToolUse:
    return ToolUse("bash", {"command": command})


def progress(message: str, percent: int) -> ToolUse:
    return ToolUse("report_progress", {"message": message, "percent": percent})


def save(path: str, description: str, type: str = "report") -> ToolUse:
    return ToolUse("save_artifact", {"path": path, "type": type, "description": description})


def deliver(
    plan: DemoPlan, name: str, content: str, about: str, *more: ToolUse
) -> Generator[Reply, list[CallResult], str]:
    """Write a report and save it, which ends the plan; a sentence that says where it is."""
    [wrote] = yield Reply(text=f"Writing {name}.", calls=(write_file(name, content),))
    if wrote.is_error:
        return f"{name} could not be written: {gist(wrote)}"
    plan.finished = ["done"] * len(plan.titles)
    yield Reply(calls=(save(name, about), *more, plan.call(), progress("The report is saved", 100)))
    return f"The whole is in {name}."


def files_in(listing: CallResult) -> list[str]:
    """The files of a listing, without folders and without reports of earlier demos."""
    if listing.is_error:
        return []
    names = [_SIZE.sub("", line.strip()) for line in listing.text.splitlines() if _SIZE.search(line)]
    return [name for name in names if not _WRITTEN.fullmatch(name) and "/." not in f"/{name}"]


def hits_in(found: CallResult) -> list[Hit]:
    matches = [] if found.is_error else [_HIT.match(line) for line in found.text.splitlines()]
    return [Hit(match[1], int(match[2]), match[3]) for match in matches if match]


def lines_in(page: CallResult) -> list[Hit]:
    """The lines of a file as read_file numbers them."""
    path = str(page.input.get("path", ""))
    matches = [] if page.is_error else [_NUMBERED.match(line) for line in page.text.splitlines()]
    return [Hit(path, int(match[1]), match[2]) for match in matches if match]


def output(ran: CallResult) -> str:
    """The output of a command, without the last line, which says how the command ended."""
    return _FOOTER.sub("", ran.text).strip()


def gist(ran: CallResult) -> str:
    """The most informative line of an output: the last one that names an error, or else the last one."""
    lines = [line.strip() for line in output(ran).splitlines() if line.strip()]
    for pattern in _ERROR_LINES:
        matching = [line for line in lines if pattern.search(line)]
        if matching:
            return matching[-1][:200]
    return lines[-1][:200] if lines else "no output"


def format_count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def quote_request(transcript: Transcript) -> str:
    return " ".join(without_markers(transcript.request).split())[:200]


def question_of(transcript: Transcript) -> str:
    """The first paragraph of the request; the later ones are instructions."""
    return " ".join(without_markers(transcript.request).split("\n\n")[0].split())[:200]


def terms(transcript: Transcript) -> list[str]:
    """The words of the request that are worth searching for, in order."""
    found = _WORD.findall(without_markers(transcript.request).split("\n\n")[0])
    chosen = dict.fromkeys(word.lower() for word in found if word.lower() not in _COMMON.split())
    return list(chosen)[:5]


def follow_approved(plan: DemoPlan, transcript: Transcript) -> None:
    """Take over the steps to which people changed the plan when they approved it."""
    for note in transcript.notes:
        if "Your plan was approved" in note and (steps := _CHANGED_STEP.findall(note)):
            plan.titles = steps


def with_notes(answer: str, transcript: Transcript) -> str:
    added = [note for note in transcript.notes if not note.startswith("<system_message>")]
    if not added:
        return answer
    notes = "; ".join(" ".join(note.split())[:200] for note in added)
    return f"{answer}\n\nWhile I worked you added: {notes}"
