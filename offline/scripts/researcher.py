"""The researcher: reads files that mention what was asked, or searches the web and reads its pages, and writes a report
that quotes them."""

import re

from offline.markers import Marker
from offline.reply import Replies, Reply, ToolUse
from offline.scripts.demo import (
    DemoPlan,
    deliver,
    files_in,
    follow_approved,
    format_count,
    gist,
    hits_in,
    lines_in,
    list_files,
    progress,
    question_of,
    read_file,
    search,
    terms,
    with_notes,
)
from offline.transcript import CallResult, Transcript

_ONLY = re.compile(r"Read only these files: (.+?)\.?$", re.MULTILINE)
_REPORT = re.compile(r"\breport (?:to|in|as) `?((?:[\w-]+/)*[\w-]+\.md)\b")
_RESULT = re.compile(r"^\d+\. (https?://\S+)$", re.MULTILINE)
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
_MOST_READ = 3


def replies(transcript: Transcript, marker: Marker) -> Replies:
    question, wanted = question_of(transcript), terms(transcript)
    named = _REPORT.search(transcript.request)  # several researchers may share a workspace
    name = named[1] if named else "report.md"
    plan = DemoPlan(["Survey the sources", "Search for what was asked", "Read the best matches", f"Write {name}"])
    _, listing = yield Reply(
        text="I will survey the workspace first, then search and read what matters.",
        thinking=f"The question is about: {', '.join(wanted) or 'everything there'}. Sources first.",
        calls=(plan.call(), list_files()),
    )
    files, only = files_in(listing), _ONLY.search(transcript.request)
    if only:
        files = [path for path in files if path in only[1].split(", ")]
    if not files and "web_search" in transcript.tools:
        yield from _search_web(transcript, plan, question, wanted, name)
        return
    _, _, found = yield Reply(
        calls=(
            plan.tick(),
            progress(f"{format_count(len(files), 'file')} to look at", 20),
            search("(?i)" + "|".join(map(re.escape, wanted or ["."]))),
        )
    )
    hits = [hit for hit in hits_in(found) if hit.path in files]
    chosen = sorted(files, key=lambda path: (-sum(hit.path == path for hit in hits), path))[:_MOST_READ]
    gaps = [] if hits else [f"No file mentions {', '.join(wanted)}."]
    titles = ("Read the files themselves", f"Write {name}")
    _, *read = yield Reply(
        text=f"{format_count(len(hits), 'matching line')}; reading {', '.join(chosen) or 'nothing'}.",
        calls=(plan.change(*titles, reason=gaps[0], done=True) if gaps else plan.tick(), *map(read_file, chosen)),
    )
    gaps += [f"{page.input['path']} could not be read: {gist(page)}" for page in read if page.is_error]
    read = [page for page in read if not page.is_error]
    quoted = sorted((hit for hit in hits if hit.path in chosen), key=lambda hit: hit.text.startswith("#"))
    findings = quoted[:12] or [line for page in read for line in lines_in(page) if line.text.strip()][:6]
    sources = [f"- {page.input['path']}: {format_count(len(lines_in(page)), 'line')} read" for page in read]
    yield Reply(calls=(plan.tick(), progress(format_count(len(findings), "finding"), 70)))
    yield from _report(transcript, plan, question, name, list(map(str, findings)), gaps, sources, [])


def _search_web(transcript: Transcript, plan: DemoPlan, question: str, wanted: list[str], name: str) -> Replies:
    """Every line of the report is a sentence of a page, with its address and when it was read."""
    follow_approved(plan, transcript)
    _, found = yield Reply(
        text="The workspace has no sources, so I search the web.",
        calls=(plan.tick(), ToolUse("web_search", {"query": question})),
    )
    urls = [] if found.is_error else _RESULT.findall(found.text)[:_MOST_READ]
    _, *pages = yield Reply(
        text=f"{format_count(len(urls), 'page')} to read.",
        calls=(plan.tick(), *(ToolUse("fetch_url", {"url": url}) for url in urls)),
    )
    read = [page for page in pages if not page.is_error]
    gaps = [f"{page.input['url']} could not be read: {gist(page)}" for page in pages if page.is_error]
    gaps += [] if urls else [f"The search found nothing: {gist(found)}"]
    findings = [one for page in read for one in _sentences(page, wanted)]
    yield Reply(calls=(plan.tick(), progress(format_count(len(findings), "finding"), 70)))
    times = {page.input["url"]: when[0] if (when := _TIME.search(page.text)) else "an unknown time" for page in read}
    sources = [f"- {url}, read at {at}" for url, at in times.items()]
    pages_read = [{"type": "page", "url": url, "description": f"Read at {at}"} for url, at in times.items()]
    saved = [ToolUse("save_artifact", one) for one in pages_read]
    yield from _report(transcript, plan, question, name, findings, gaps, sources, saved)


def _sentences(page: CallResult, wanted: list[str]) -> list[str]:
    lines = [line.strip() for line in page.text.splitlines()[1:] if line.strip().endswith(".")]
    matching = [line for line in lines if any(word.rstrip("s") in line.lower() for word in wanted)]
    return [f"{line} [{page.input['url']}]" for line in (matching or lines)[:3]]


def _report(
    transcript: Transcript,
    plan: DemoPlan,
    question: str,
    name: str,
    findings: list[str],
    gaps: list[str],
    sources: list[str],
    saved: list[ToolUse],
) -> Replies:
    listed = [f"- {finding}" for finding in findings] or ["No source answers it."]
    missing = [f"- {gap}" for gap in gaps] or ["None that the search showed."]
    lines = ["# Report", "", f"Question: {question}", "", "## Findings", "", *listed]
    lines += ["", "## Contradictions and gaps", "", *missing, "", "## Sources", "", *sources, ""]
    where = yield from deliver(plan, name, "\n".join(lines), f"Report on: {question}", *saved)
    said = "\n".join([f'On "{question}" the sources say:', *listed[:5]])
    gap = f"\n\nGaps: {' '.join(gaps)}" if gaps else ""
    yield Reply(text=with_notes(f"{said}{gap}\n\n{where}", transcript))
