"""The orchestrator: divides the files of a goal among several researchers in parallel and combines their reports."""

import re
from collections.abc import Generator
from dataclasses import dataclass

from offline.markers import Marker
from offline.reply import Replies, Reply, ToolUse
from offline.scripts.demo import (
    DemoPlan,
    files_in,
    format_count,
    gist,
    lines_in,
    list_files,
    progress,
    question_of,
    read_file,
    save,
    terms,
    with_notes,
    write_file,
)
from offline.transcript import CallResult, Transcript

_MOST_PARTS = 3
_ROUNDS = 3  # how often it waits for the researchers
_LAUNCHED = re.compile(r"^task_id: (\S+)$", re.MULTILINE)
_ENDED = re.compile(r"^status: (complete|error)\ntask_id: (\S+)\n(?:error_type: \S+\n)?", re.MULTILINE)


@dataclass
class Assignment:
    """A part of the goal: its files and, in the end, its researcher's answer."""

    number: int
    files: list[str]
    task_id: str = ""
    answer: str = ""  # the researcher's answer
    failed: str = ""  # the reason why the part was not done

    @property
    def report(self) -> str:
        return f"reports/part-{self.number}.md"

    def prompt(self, goal: str) -> str:
        return f"{goal}\n\nRead only these files: {', '.join(self.files)}.\nWrite your report to {self.report}."

    def arguments(self, goal: str, label: str) -> dict[str, str]:
        return {"agent": "researcher", "prompt": self.prompt(goal), "description": label}


def replies(transcript: Transcript, marker: Marker) -> Replies:
    goal = question_of(transcript)
    plan = DemoPlan(["Learn what there is", "Assign the parts", "Collect the reports", "Bring it together"])
    _, listing = yield Reply(
        text="I look at the material first, then give its parts to researchers who work in parallel.",
        thinking=f"The goal: {goal}. The material decides how it is divided.",
        calls=(plan.call(), list_files()),
    )
    files = files_in(listing)
    if not files:
        files = yield from _prepare(transcript, goal, plan)
    parts = [Assignment(number + 1, files[number::_MOST_PARTS]) for number in range(min(len(files), _MOST_PARTS))]
    if not parts:
        reason = f"There is nothing to work on: {gist(listing)}"
        yield Reply(calls=(plan.change(reason=reason),))
        yield Reply(text=with_notes(f"{reason}. Nothing was assigned.", transcript))
        return
    yield from _fan_out(goal, plan, parts)
    yield from _collect(plan, parts)
    if any(part.failed for part in parts):
        yield from _try_again(goal, plan, parts)
    pages = yield from _read(plan, parts)
    yield from _join(transcript, goal, plan, parts, pages)


def _prepare(transcript: Transcript, goal: str, plan: DemoPlan) -> Generator[Reply, list[CallResult], list[str]]:
    """If there are no files to read, write files with what is known about the goal."""
    topics = terms(transcript) or ["goal"]
    notes = {
        "notes/goal.md": f"# Goal\n\n{goal}\n",
        "notes/terms.md": "# Terms of the goal\n\n" + "".join(f"- {topic}\n" for topic in topics),
        "notes/questions.md": "# Open questions\n\n" + "".join(f"- What is known about {topic}?\n" for topic in topics),
    }
    reason = "The workspace is empty, so the goal itself is the material"
    titles = ("Write down what is known", "Assign the parts", "Collect the reports", "Bring it together")
    _, *wrote = yield Reply(
        text=f"{reason}. I write down what is known about it.",
        calls=(
            plan.change(*titles, reason=reason, done=True),
            *(write_file(path, text) for path, text in notes.items()),
        ),
    )
    return [path for path, result in zip(notes, wrote, strict=True) if not result.is_error]


def _fan_out(goal: str, plan: DemoPlan, parts: list[Assignment]) -> Replies:
    named = "; ".join(f"part {part.number}: {', '.join(part.files)}" for part in parts)
    _, _, *results = yield Reply(
        text=f"{format_count(len(parts), 'researcher')} at once. {named}.",
        thinking="The parts do not depend on each other, so nobody has to wait.",
        calls=(
            plan.tick(),
            progress(f"Assigning {format_count(len(parts), 'part')}", 25),
            *(ToolUse("async_task", part.arguments(goal, f"Part {part.number} of {len(parts)}")) for part in parts),
        ),
    )
    for part, result in zip(parts, results, strict=True):
        launched = None if result.is_error else _LAUNCHED.search(result.text)
        if launched:
            part.task_id = launched[1]
        else:
            part.failed = f"it could not be assigned: {gist(result)}"


def _collect(plan: DemoPlan, parts: list[Assignment]) -> Replies:
    """Wait for all researchers; the report is written without those that take too long."""
    waiting = {part.task_id: part for part in parts if part.task_id}
    for round in range(_ROUNDS):
        if not waiting:
            return
        gather = ToolUse("gather", {"task_ids": list(waiting), "timeout_s": 120})
        *_, result = yield Reply(
            text="Waiting for their reports." if round == 0 else f"Still waiting for {len(waiting)}.",
            calls=(gather,) if round else (plan.tick(), gather),
        )
        if result.is_error:
            break
        for status, task_id, text in _ends(result.text):
            part = waiting.pop(task_id, None)
            if part and status == "complete":
                part.answer = text
            elif part:
                part.failed = " ".join(text.split())[:200] or "its researcher failed"
    for part in waiting.values():
        part.failed = "its researcher is still running"


def _ends(text: str) -> list[tuple[str, str, str]]:
    """Status, id and text of every researcher that has ended."""
    heads = list(_ENDED.finditer(text))
    limits = [head.start() for head in heads[1:]] + [len(text)]
    return [
        (head[1], head[2], _outcome_text(text[head.end() : limit])) for head, limit in zip(heads, limits, strict=False)
    ]


def _outcome_text(block: str) -> str:
    return block.split("\nStill running (")[0].replace("<task_result>", "").replace("</task_result>", "").strip()


def _try_again(goal: str, plan: DemoPlan, parts: list[Assignment]) -> Replies:
    """Assign the failed parts once more, and wait for them."""
    failed = [part for part in parts if part.failed]
    reason = "; ".join(f"Part {part.number}: {part.failed}" for part in failed)
    titles = (f"Assign {format_count(len(failed), 'part')} again", "Bring it together")
    _, *results = yield Reply(
        text=f"{reason}. I assign {'it' if len(failed) == 1 else 'them'} again and wait.",
        thinking="One failure may be chance; a second one is not.",
        calls=(
            plan.change(*titles, reason=reason[:500], done=any(part.task_id for part in parts)),
            *(ToolUse("task", part.arguments(goal, f"Part {part.number} again")) for part in failed),
        ),
    )
    for part, result in zip(failed, results, strict=True):
        ends = _ends(result.text)
        if not result.is_error and ends:
            part.failed, (_, part.task_id, part.answer) = "", ends[0]
        else:
            part.failed = f"{part.failed}; then again: {gist(result)}"


def _read(plan: DemoPlan, parts: list[Assignment]) -> Generator[Reply, list[CallResult], list[CallResult]]:
    """Read the reports; for a part that was not done, read its files instead."""
    paths = [path for part in parts for path in ([part.report] if not part.failed else part.files[:2])]
    done = sum(not part.failed for part in parts)
    _, _, *pages = yield Reply(
        text=f"{done} of {format_count(len(parts), 'part')} came back. Reading what they wrote.",
        calls=(plan.tick(), progress(f"{done} of {len(parts)} reports", 75), *map(read_file, paths)),
    )
    return pages


def _join(
    transcript: Transcript, goal: str, plan: DemoPlan, parts: list[Assignment], pages: list[CallResult]
) -> Replies:
    read = {str(page.input.get("path")): page for page in pages if not page.is_error}
    sections = [_section(part, read) for part in parts]
    findings = sum(text.count("\n- ") for text in sections)
    open_ends = [f"- Part {part.number} was not done: {part.failed}" for part in parts if part.failed]
    outcome = f"{format_count(findings, 'finding')} from {format_count(len(parts) - len(open_ends), 'report')}"
    summary = "\n".join(
        [f"# Summary\n\nGoal: {goal}\n\n{outcome}.\n", *sections, "## Open\n", *(open_ends or ["Nothing."]), ""]
    )
    [wrote] = yield Reply(text="Bringing the parts together.", calls=(write_file("summary.md", summary),))
    saved = () if wrote.is_error else (save("summary.md", f"Outcome of: {goal}"),)
    yield Reply(calls=(*saved, plan.tick(), progress("All parts are joined", 100)))
    where = f"summary.md could not be written: {gist(wrote)}" if wrote.is_error else "The whole is in summary.md."
    details = "\n".join([*sections, *open_ends])
    yield Reply(text=with_notes(f'Goal: "{goal}"\n\n{outcome}.\n\n{details}\n\n{where}', transcript))


def _section(part: Assignment, read: dict[str, CallResult]) -> str:
    head = f"## Part {part.number}: {', '.join(part.files)}\n"
    if part.failed:
        own = [line for path in part.files if path in read for line in lines_in(read[path]) if line.text.strip()]
        return "\n".join([head, "I read it myself:", *(f"- {line}" for line in own[:3]), ""])
    page = read.get(part.report)
    quotes = [line.text for line in lines_in(page) if line.text.startswith("- `")] if page else []
    body = quotes[:8] or [part.answer[:600] or "(its researcher said nothing)"]
    return "\n".join([head, *body, "", f"By the researcher {part.task_id}; the report is {part.report}.", ""])
