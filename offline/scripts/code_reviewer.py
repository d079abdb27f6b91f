"""The code reviewer: reads the code, runs its tests or another check, and writes review.md."""

import json
import re
import shlex
from contextlib import suppress

from offline.markers import Marker, without_markers
from offline.reply import Replies, Reply
from offline.scripts.demo import (
    DemoPlan,
    Hit,
    bash,
    deliver,
    files_in,
    format_count,
    gist,
    hits_in,
    list_files,
    progress,
    read_file,
    search,
    with_notes,
)
from offline.transcript import CallResult, Transcript

_CODE = (".py", ".js", ".ts", ".sh", ".go", ".rs", ".java", ".c", ".rb")
_UNABLE = re.compile(r"no module named|command not found|: not found|nothing was run|not available", re.IGNORECASE)
_TEST = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py$")


RULES = (  # pattern, severity, problem
    (r"\b(eval|exec)\(", "high", "runs text as code, so the text controls the program"),
    (r"shell=True", "high", "hands a string to a shell; a crafted value runs another command"),
    (r"except\s*:", "medium", "swallows every error, even unexpected ones"),
    (r"\b(TODO|FIXME|XXX)\b", "low", "marked as unfinished"),
)
_ORDER = ("high", "medium", "low")
Finding = tuple[str, str, str]  # severity, location, description


def replies(transcript: Transcript, marker: Marker) -> Replies:
    path = _path_asked(transcript)
    plan = DemoPlan(["Survey the code", "Read it and run its tests", "Write review.md"])
    _, listing = yield Reply(
        text=f"Reviewing {path}.",
        thinking="The files decide how the code can be checked.",
        calls=(plan.call(), list_files(path)),
    )
    files = files_in(listing)
    code = [name for name in files if name.endswith(_CODE)]
    if not code:
        why = gist(listing) if listing.is_error else format_count(len(files), "file")
        reason = f"There is no code in {path}: {why}"
        yield Reply(calls=(plan.change(reason=reason, done=True), progress(reason, 50)))
        answer = f"{reason}. Nothing was reviewed. Give the task files, or a path that has code."
        yield Reply(text=with_notes(answer, transcript))
        return
    tested = any(map(_TEST.search, files))
    command = "python3 -m pytest -q" if tested else f"wc -l {' '.join(map(shlex.quote, code[:20]))}"
    _, _, found, ran, *_ = yield Reply(
        text=f"{format_count(len(code), 'source file')}. Reading them and running `{command}`.",
        calls=(
            plan.tick(),
            progress(f"{format_count(len(code), 'source file')}, {format_count(len(files), 'file')} in all", 25),
            search("|".join(pattern for pattern, _, _ in RULES), path),
            bash(command),
            *map(read_file, sorted(code)[:4]),
        ),
    )
    checks = [ran]
    if tested and ran.is_error and _UNABLE.search(ran.text):
        reason = f"`{command}` cannot run here: {gist(ran)}"
        folder = next(filter(_TEST.search, files)).rpartition("/")[0]
        _, _, second = yield Reply(
            text="That did not work, so the plan changes.",
            thinking=f"{reason}. Repeating it would fail again; another check may still show something.",
            calls=(
                plan.change("Check by other means", "Write review.md", reason=reason),
                progress(reason[:150], 45),
                bash(f"python3 -m unittest discover -q -s {shlex.quote(folder or '.')}"),
            ),
        )
        checks.append(second)
    findings = _findings(hits_in(found), code, checks)
    verdict = _verdict(findings, checks)
    yield Reply(calls=(plan.tick(), progress(format_count(len(findings), "finding"), 75)))
    where = yield from deliver(
        plan, "review.md", _review(verdict, findings, checks, code), f"Review of {path}: {verdict}"
    )
    worst = "\n".join(f"- {severity}: {problem} [{at}]" for severity, at, problem in findings[:5])
    yield Reply(text=with_notes(f"Verdict: {verdict}.\n{worst or 'No findings.'}\n\n{where}", transcript))


def _path_asked(transcript: Transcript) -> str:
    """The path of a JSON object as the request, or else everything."""
    with suppress(ValueError, KeyError, TypeError):
        return str(json.loads(without_markers(transcript.request))["path"])
    return "."


def _findings(hits: list[Hit], code: list[str], checks: list[CallResult]) -> list[Finding]:
    found: list[Finding] = []
    for hit in hits:
        rules = [one for one in RULES if re.search(one[0], hit.text) and hit.path in code]
        for _, severity, problem in rules[:1]:
            found.append((severity, f"{hit.path}:{hit.line}", f"`{hit.text.strip()[:80]}` {problem}"))
    for ran in checks:
        if ran.is_error and not _UNABLE.search(ran.text):
            found.insert(0, ("high", str(ran.input.get("command", ""))[:60], f"the check fails: {gist(ran)}"))
    return sorted(found, key=lambda finding: _ORDER.index(finding[0]))


def _verdict(findings: list[Finding], checks: list[CallResult]) -> str:
    counts = ", ".join(f"{sum(f[0] == level for f in findings)} {level}" for level in _ORDER)
    unproved = "" if any(not ran.is_error for ran in checks) else "; no check passed"
    ready = "ready" if not findings else "not ready" if findings[0][0] == "high" else "ready after small fixes"
    return f"{ready} ({counts}{unproved})"


def _review(verdict: str, findings: list[Finding], checks: list[CallResult], code: list[str]) -> str:
    listed = [f"- **{severity}** {at}: {problem}" for severity, at, problem in findings] or ["None."]
    ran = [f"- `{c.input.get('command')}`: {'failed' if c.is_error else 'passed'}; {gist(c)}" for c in checks]
    looked = f"Everything but {format_count(len(code), 'source file')}: {', '.join(code[:20])}."
    lines = ["# Review", "", f"Verdict: {verdict}.", "", "## Findings", "", *listed, "", "## Checks", "", *ran]
    return "\n".join([*lines, "", "## Not looked at", "", looked, ""])
