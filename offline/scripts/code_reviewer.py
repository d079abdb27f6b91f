"""The code reviewer: reads the code, runs its tests or another check, and writes review.md."""

import json
import re
import shlex
from dataclasses import dataclass

from offline.markers import Marker, without_markers
from offline.reply import Replies, Reply
from offline.scripts.demo import (
    DemoPlan,
    Hit,
    bash,
    files_in,
    format_count,
    gist,
    hits_in,
    list_files,
    progress,
    read_file,
    save,
    search,
    with_notes,
    write_file,
)
from offline.transcript import CallResult, Transcript

_CODE = (".py", ".js", ".ts", ".sh", ".go", ".rs", ".java", ".c", ".rb")
_UNABLE = re.compile(r"no module named|command not found|: not found|nothing was run|not available", re.IGNORECASE)
_TEST = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py$")


@dataclass(frozen=True)
class ReviewRule:
    pattern: str
    severity: str
    problem: str


RULES = (
    ReviewRule(r"\b(eval|exec)\(", "high", "runs text as code, so the text controls the program"),
    ReviewRule(r"shell=True", "high", "hands a string to a shell; a crafted value runs another command"),
    ReviewRule(r"(?i)(password|secret|api_key|token)\s*=\s*[\"'][^\"']+[\"']", "high", "a secret is in the source"),
    ReviewRule(r"except\s*:", "medium", "swallows every error, even unexpected ones"),
    ReviewRule(r"def .*=\s*(\[\]|\{\})", "medium", "a mutable default is shared by all calls"),
    ReviewRule(r"pickle\.loads?\(|yaml\.load\(", "medium", "loads data that can run code"),
    ReviewRule(r"\b(TODO|FIXME|XXX)\b", "low", "marked as unfinished"),
    ReviewRule(r"[!=]= None", "low", "compares with None by equality"),
)
_ORDER = ("high", "medium", "low")
Finding = tuple[str, str, str]  # severity, location, description


def replies(transcript: Transcript, marker: Marker) -> Replies:
    path, focus = _read_asked(transcript)
    plan = DemoPlan(["Survey the code", "Read it and run its tests", "Write review.md"])
    _, listing = yield Reply(
        text=f"Reviewing {path}" + (f", {focus} first." if focus else "."),
        thinking="The files decide how the code can be checked.",
        calls=(plan.call(), list_files(path)),
    )
    files = files_in(listing)
    code = [name for name in files if name.endswith(_CODE)]
    if not code:
        reason = f"There is no code in {path}" + (
            f": {gist(listing)}" if listing.is_error else f" ({format_count(len(files), 'file')})"
        )
        yield Reply(calls=(plan.change(reason=reason, done=True), progress(reason, 50)))
        yield Reply(
            text=with_notes(
                f"{reason}. Nothing was reviewed. Give the task files, or a path that has code.", transcript
            )
        )
        return
    command = _check_command(files, code)
    chosen = sorted(code, key=lambda name: (bool(focus) and focus not in name, "test" in name, name))[:4]
    _, _, found, ran, *_ = yield Reply(
        text=f"{format_count(len(code), 'source file')}. Reading them and running `{command}`.",
        calls=(
            plan.tick(),
            progress(f"{format_count(len(code), 'source file')}, {format_count(len(files), 'file')} in all", 25),
            search("|".join(rule.pattern.replace("(?i)", "") for rule in RULES), path),
            bash(command),
            *map(read_file, chosen),
        ),
    )
    checks = [ran]
    if ran.is_error:
        unable = _UNABLE.search(ran.text)
        reason = f"`{command}` {'cannot run here' if unable else 'fails'}: {gist(ran)}"
        step = "Check by other means" if unable else "Find the cause of the failure"
        again = search(_suspect(ran), path)
        if unable:
            again = bash(_other_command(files) if "pytest" in command else "ls -l")
        _, _, second = yield Reply(
            text="That did not work, so the plan changes.",
            thinking=f"{reason}. Repeating it would fail again; another check may still show something.",
            calls=(plan.change(step, "Write review.md", reason=reason), progress(reason[:150], 45), again),
        )
        checks += [second] if unable else []
    findings = _findings(hits_in(found), code, checks)
    verdict = _verdict(findings, checks)
    yield Reply(calls=(plan.tick(), progress(format_count(len(findings), "finding"), 75)))
    wrote, *_ = yield Reply(
        text="Writing the review.", calls=(write_file("review.md", _review(verdict, findings, checks, code)),)
    )
    if not wrote.is_error:
        yield Reply(calls=(save("review.md", f"Review of {path}: {verdict}"), plan.tick(), progress(verdict, 100)))
    where = "The review is in review.md." if not wrote.is_error else f"review.md could not be written: {gist(wrote)}"
    worst = "\n".join(f"- {severity}: {problem} [{at}]" for severity, at, problem in findings[:5])
    yield Reply(text=with_notes(f"Verdict: {verdict}.\n{worst or 'No findings.'}\n\n{where}", transcript))


def _read_asked(transcript: Transcript) -> tuple[str, str]:
    """Return path and focus: from a JSON object in the request, or else everything."""
    text = without_markers(transcript.request)
    for start in (match.start() for match in re.finditer(r"\{", text)):
        try:
            given, _ = json.JSONDecoder().raw_decode(text, start)
        except json.JSONDecodeError:
            continue
        if isinstance(given, dict) and isinstance(given.get("path"), str):
            return given["path"], str(given.get("focus", ""))
    return ".", next((word for word in ("security", "tests", "errors") if word in text.lower()), "")


def _check_command(files: list[str], code: list[str]) -> str:
    python = [name for name in code if name.endswith(".py")]
    if any(map(_TEST.search, files)):
        return "python3 -m pytest -q"
    if "Makefile" in files:
        return "make test"
    if python:
        names = " ".join(map(shlex.quote, python[:20]))
        return f'python3 -c "import ast, sys; [ast.parse(open(name).read(), name) for name in sys.argv[1:]]" {names}'
    shell = [name for name in code if name.endswith(".sh")]
    return f"sh -n {' '.join(map(shlex.quote, shell))}" if shell else f"wc -l {' '.join(map(shlex.quote, code[:20]))}"


def _other_command(files: list[str]) -> str:
    folder, _, _ = next(filter(_TEST.search, files)).rpartition("/")
    return f"python3 -m unittest discover -q -s {shlex.quote(folder or '.')}"


def _suspect(ran: CallResult) -> str:
    """Return what to search for: the test or the name in the failing output."""
    named = re.search(r"\b(test_\w+)|NameError: name '(\w+)'|(\w+Error)\b", ran.text)
    return next((group for group in named.groups() if group), "assert") if named else "assert"


def _findings(hits: list[Hit], code: list[str], checks: list[CallResult]) -> list[Finding]:
    found: list[Finding] = []
    for hit in hits:
        rule = next((rule for rule in RULES if re.search(rule.pattern, hit.text)), None)
        if rule and hit.path in code:
            found.append((rule.severity, f"{hit.path}:{hit.line}", f"`{hit.text.strip()[:80]}` {rule.problem}"))
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
    lines = ["# Review", "", f"Verdict: {verdict}.", "", "## Findings", ""]
    lines += [f"- **{severity}** {at}: {problem}" for severity, at, problem in findings] or ["None."]
    lines += ["", "## Checks", ""]
    lines += [f"- `{c.input.get('command')}`: {'failed' if c.is_error else 'passed'}; {gist(c)}" for c in checks]
    lines += [
        "",
        "## Not looked at",
        "",
        f"Everything but {format_count(len(code), 'source file')}: {', '.join(code[:20])}.",
        "",
    ]
    return "\n".join(lines)
