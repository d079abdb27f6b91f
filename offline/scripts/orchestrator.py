"""The orchestrator: divides the files of a goal among several researchers in parallel and combines their reports."""

import re
from dataclasses import dataclass

from offline.markers import Marker
from offline.reply import Replies, Reply, ToolUse
from offline.scripts.demo import (
    DemoPlan,
    deliver,
    files_in,
    format_count,
    gist,
    lines_in,
    list_files,
    progress,
    question_of,
    read_file,
    with_notes,
)
from offline.transcript import CallResult, Transcript

_MOST_PARTS = 3
_LAUNCHED = re.compile(r"^task_id: (\S+)$", re.MULTILINE)
_ENDED = re.compile(r"^status: (complete|error)\ntask_id: (\S+)$", re.MULTILINE)


@dataclass
class Assignment:
    """A part of the goal: its files, its researcher, and why it was not done."""

    number: int
    files: list[str]
    task_id: str = ""
    failed: str = ""

    @property
    def report(self) -> str:
        return f"reports/part-{self.number}.md"

    def call(self, goal: str) -> ToolUse:
        prompt = f"{goal}\n\nRead only these files: {', '.join(self.files)}.\nWrite your report to {self.report}."
        given = {"agent": "researcher", "prompt": prompt, "description": f"Part {self.number}"}
        return ToolUse("async_task", given)


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
        reason = f"There is nothing to work on: {gist(listing)}"
        yield Reply(calls=(plan.change(reason=reason),))
        yield Reply(text=with_notes(f"{reason}. Nothing was assigned.", transcript))
        return
    parts = [Assignment(number + 1, files[number::_MOST_PARTS]) for number in range(min(len(files), _MOST_PARTS))]
    named = "; ".join(f"part {part.number}: {', '.join(part.files)}" for part in parts)
    _, _, *launched = yield Reply(
        text=f"{format_count(len(parts), 'researcher')} at once. {named}.",
        thinking="The parts do not depend on each other, so nobody has to wait.",
        calls=(
            plan.tick(),
            progress(f"Assigning {format_count(len(parts), 'part')}", 25),
            *(part.call(goal) for part in parts),
        ),
    )
    for part, result in zip(parts, launched, strict=True):
        found = None if result.is_error else _LAUNCHED.search(result.text)
        part.task_id, part.failed = (found[1], "") if found else ("", f"it could not be assigned: {gist(result)}")
    running = [part.task_id for part in parts if part.task_id]
    gather = [ToolUse("gather", {"task_ids": running, "timeout_s": 120})] if running else []
    *_, gathered = yield Reply(text="Waiting for their reports.", calls=(plan.tick(), *gather))
    done = {found[2] for found in _ENDED.finditer(gathered.text) if found[1] == "complete"}
    for part in parts:
        if part.task_id not in done:
            part.failed = part.failed or "its researcher did not finish"
    yield from _join(transcript, goal, plan, parts)


def _join(transcript: Transcript, goal: str, plan: DemoPlan, parts: list[Assignment]) -> Replies:
    """Read the reports; for a part that was not done, read its files instead."""
    failed = [f"- Part {part.number} was not done: {part.failed}" for part in parts if part.failed]
    change = plan.change("Read their files and bring it together", reason=failed[0]) if failed else plan.tick()
    paths = [path for part in parts for path in (part.files[:2] if part.failed else [part.report])]
    done = f"{len(parts) - len(failed)} of {len(parts)} reports"
    _, _, *pages = yield Reply(
        text=f"{done} came back. Reading what they wrote.",
        calls=(change, progress(done, 75), *map(read_file, paths)),
    )
    read = {str(page.input.get("path")): page for page in pages if not page.is_error}
    sections = [_section(part, read) for part in parts]
    details = "\n".join([*sections, "## Open\n", *(failed or ["Nothing."])])
    summary = f"# Summary\n\nGoal: {goal}\n\n{done}.\n\n{details}\n"
    where = yield from deliver(plan, "summary.md", summary, f"Outcome of: {goal}")
    yield Reply(text=with_notes(f'Goal: "{goal}"\n\n{done}.\n\n{details}\n\n{where}', transcript))


def _section(part: Assignment, read: dict[str, CallResult]) -> str:
    lines = [line for path in (part.report, *part.files) if path in read for line in lines_in(read[path])]
    if part.failed:
        quoted = [f"- {line}" for line in lines if line.text.strip()][:3]
        source = "I read it myself."
    else:
        quoted = [line.text for line in lines if line.text.startswith("- `")][:8]
        source = f"By the researcher {part.task_id}; the report is {part.report}."
    return "\n".join([f"## Part {part.number}: {', '.join(part.files)}\n", *quoted, "", source, ""])
