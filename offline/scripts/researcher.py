"""The researcher: surveys, searches and reads files, and writes a report that quotes them."""

import re

from offline.markers import Marker
from offline.reply import Replies, Reply, ToolUse
from offline.scripts.demo import (
    DemoPlan,
    Hit,
    counted,
    files_in,
    gist,
    hits_in,
    lines_in,
    list_files,
    many,
    progress,
    question_of,
    read_file,
    save,
    search,
    terms,
    with_notes,
    write_file,
)
from offline.transcript import CallResult, Transcript

_URL = re.compile(r"https?://[^\s)>\]\"']+")
_ONLY = re.compile(r"Read only these files: (.+?)\.?$", re.MULTILINE)
_REPORT = re.compile(r"\breport (?:to|in|as) `?((?:[\w-]+/)*[\w-]+\.md)\b")
_MOST_READ = 3


def replies(transcript: Transcript, marker: Marker) -> Replies:
    question, wanted = question_of(transcript), terms(transcript)
    urls = _URL.findall(transcript.request)[:3]
    name = _report_name(transcript)
    plan = DemoPlan(["Survey the sources", "Search for what was asked", "Read the best matches", f"Write {name}"])
    _, listing, *pages = yield Reply(
        text="I will survey the workspace first, then search and read what matters.",
        thinking=f"The question is about: {', '.join(wanted) or 'everything there'}. Sources first.",
        calls=(plan.call(), list_files(), *(ToolUse("fetch_url", {"url": url}) for url in urls)),
    )
    files, gaps = _in_scope(transcript, files_in(listing)), []
    if lost := [page for page in pages if page.is_error]:
        gaps = [f"{page.input['url']} could not be fetched: {gist(page)}" for page in lost]
        yield Reply(
            text="An address did not answer; the report will use the other sources.",
            calls=(
                plan.change(
                    "Search what can be reached",
                    "Read the best matches",
                    f"Write {name}",
                    reason=gaps[0],
                    done=True,
                ),
                progress(f"{len(lost)} of {len(pages)} addresses failed", 20),
            ),
        )
    else:
        yield Reply(
            calls=(
                plan.tick(),
                progress(f"{many(len(files), 'file')} and {many(len(pages), 'web page')} to look at", 20),
            )
        )
    hits: list[Hit] = []
    if files:
        [found] = yield Reply(calls=(search("(?i)" + "|".join(map(re.escape, wanted or ["."]))),))
        hits = [hit for hit in hits_in(found) if hit.path in files]
    chosen = _best(files, hits)
    if files and not hits:
        gaps.append(f"No file mentions {', '.join(wanted)}.")
        change = plan.change("Read the files themselves", f"Write {name}", reason=gaps[-1], done=True)
    else:
        change = plan.tick()
    _, *read = yield Reply(
        text=f"{counted(len(hits), 'matching line')}; reading {', '.join(chosen)}."
        if chosen
        else "There is nothing to read.",
        calls=(change, *map(read_file, chosen)),
    )
    gaps += [f"{page.input['path']} could not be read: {gist(page)}" for page in read if page.is_error]
    findings = _findings(hits, read)
    report = _report(question, findings, gaps, [page for page in (*read, *pages) if not page.is_error])
    yield Reply(calls=(plan.tick(), progress(many(len(findings), "finding"), 70)))
    wrote, *_ = yield Reply(text="Writing the report.", calls=(write_file(name, report),))
    if wrote.is_error:
        yield Reply(
            text=with_notes(f"The report could not be written ({gist(wrote)}), so here it is:\n\n{report}", transcript)
        )
        return
    yield Reply(calls=(save(name, f"Report on: {question}"), plan.tick(), progress("The report is saved", 100)))
    yield Reply(text=with_notes(_answer(question, findings, gaps, name), transcript))


def _report_name(transcript: Transcript) -> str:
    """The file that the request names: several researchers may share a workspace."""
    named = _REPORT.search(transcript.request)
    return named[1] if named else "report.md"


def _in_scope(transcript: Transcript, files: list[str]) -> list[str]:
    only = _ONLY.search(transcript.request)
    return [name for name in files if name in only[1].split(", ")] if only else files


def _best(files: list[str], hits: list[Hit]) -> list[str]:
    """The files with the most matches; if nothing matches, the files that usually explain the others."""
    score = {path: sum(hit.path == path for hit in hits) for path in files}
    explaining = [path for path in files if path.lower().endswith((".md", ".txt", ".rst"))]
    order = sorted((path for path in files if score[path]), key=lambda path: (-score[path], path))
    return (order or explaining or files)[:_MOST_READ]


def _findings(hits: list[Hit], read: list[CallResult]) -> list[Hit]:
    texts = {hit.path: hit for page in read for hit in lines_in(page)}
    quoted = sorted((hit for hit in hits if hit.path in texts), key=lambda hit: hit.text.startswith("#"))
    return quoted[:12] or [line for page in read for line in lines_in(page) if line.text.strip()][:6]


def _answer(question: str, findings: list[Hit], gaps: list[str], name: str) -> str:
    if not findings:
        return f'Nothing in the sources answers "{question}". {" ".join(gaps)} The report is in {name}.'
    listed = "\n".join(f"- {hit}" for hit in findings[:5])
    gap = f"\n\nGaps: {' '.join(gaps)}" if gaps else ""
    where = f"The whole report with {len(findings)} findings is in {name}."
    return f'On "{question}" the sources say:\n{listed}{gap}\n\n{where}'


def _report(question: str, findings: list[Hit], gaps: list[str], sources: list[CallResult]) -> str:
    lines = ["# Report", "", f"Question: {question}", "", "## Answer", ""]
    lines.append(
        f"{len(findings)} relevant passages; the first is {findings[0]}." if findings else "No source answers it."
    )
    lines += ["", "## Findings", "", *(f"- {hit}" for hit in findings)]
    lines += ["", "## Contradictions and gaps", "", *(f"- {gap}" for gap in gaps or ["None that the search showed."])]
    lines += ["", "## Sources", ""]
    lines += [f"- {source.input.get('path') or source.input.get('url')}: {_extent(source)}" for source in sources]
    return "\n".join([*lines, ""])


def _extent(source: CallResult) -> str:
    numbered = lines_in(source)
    return f"{counted(len(numbered), 'line')} read" if numbered else f'"{" ".join(source.text.split())[:120]}"'
