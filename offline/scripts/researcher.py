"""The researcher: surveys, searches and reads files, or searches the web and reads its pages, and writes a report that
quotes them."""

import re
from collections.abc import Sequence

from offline.markers import Marker
from offline.reply import Replies, Reply, ToolUse
from offline.scripts.demo import (
    DemoPlan,
    Hit,
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
_RESULT = re.compile(r"^\d+\. (https?://\S+)$", re.MULTILINE)
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
_MOST_READ = 3


def replies(transcript: Transcript, marker: Marker) -> Replies:
    question, wanted = question_of(transcript), terms(transcript)
    urls = _URL.findall(transcript.request)[:3]
    named = _REPORT.search(transcript.request)  # several researchers may share a workspace
    name = named[1] if named else "report.md"
    plan = DemoPlan(["Survey the sources", "Search for what was asked", "Read the best matches", f"Write {name}"])
    _, listing, *pages = yield Reply(
        text="I will survey the workspace first, then search and read what matters.",
        thinking=f"The question is about: {', '.join(wanted) or 'everything there'}. Sources first.",
        calls=(plan.call(), list_files(), *(ToolUse("fetch_url", {"url": url}) for url in urls)),
    )
    files, gaps, only = files_in(listing), [], _ONLY.search(transcript.request)
    if only:
        files = [name for name in files if name in only[1].split(", ")]
    if not files and not urls and "web_search" in transcript.tools:
        yield from _search_web(transcript, plan, question, wanted, name)
        return
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
                progress(
                    f"{format_count(len(files), 'file')} and {format_count(len(pages), 'web page')} to look at", 20
                ),
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
        text=f"{format_count(len(hits), 'matching line')}; reading {', '.join(chosen)}."
        if chosen
        else "There is nothing to read.",
        calls=(change, *map(read_file, chosen)),
    )
    gaps += [f"{page.input['path']} could not be read: {gist(page)}" for page in read if page.is_error]
    findings = _findings(hits, read)
    listed = [
        f"- {page.input.get('path') or page.input.get('url')}: {_extent(page)}"
        for page in (*read, *pages)
        if not page.is_error
    ]
    report = _layout(question, findings, gaps, listed)
    yield Reply(calls=(plan.tick(), progress(format_count(len(findings), "finding"), 70)))
    wrote, *_ = yield Reply(text="Writing the report.", calls=(write_file(name, report),))
    if wrote.is_error:
        yield Reply(
            text=with_notes(f"The report could not be written ({gist(wrote)}), so here it is:\n\n{report}", transcript)
        )
        return
    yield Reply(calls=(save(name, f"Report on: {question}"), plan.tick(), progress("The report is saved", 100)))
    yield Reply(text=with_notes(_answer(question, findings, gaps, name), transcript))


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
    listed = [f"- {page.input['url']}, read at {_read_at(page)}" for page in read]
    report = _layout(question, findings, gaps, listed)
    yield Reply(calls=(plan.tick(), progress(format_count(len(findings), "finding"), 70), write_file(name, report)))
    pages_read = [{"url": page.input["url"], "description": f"Read at {_read_at(page)}"} for page in read]
    saved = [ToolUse("save_artifact", {"type": "page", **one}) for one in pages_read]
    plan.finished = ["done"] * len(plan.titles)
    yield Reply(calls=(save(name, f"Report on: {question}"), *saved, plan.call(), progress("The report is saved", 100)))
    yield Reply(text=with_notes(_answer(question, findings, gaps, name), transcript))


def _sentences(page: CallResult, wanted: list[str]) -> list[str]:
    lines = [line.strip() for line in page.text.splitlines()[1:] if line.strip().endswith(".")]
    matching = [line for line in lines if any(word.rstrip("s") in line.lower() for word in wanted)]
    return [f"{line} [{page.input['url']}]" for line in (matching or lines)[:3]]


def _read_at(page: CallResult) -> str:
    found = _TIME.search(page.text)
    return found[0] if found else "an unknown time"


def _best(files: list[str], hits: list[Hit]) -> list[str]:
    """The files with the most matches; if nothing matches, the files that usually explain the others."""
    score = {path: sum(hit.path == path for hit in hits) for path in files}
    explaining = [path for path in files if path.lower().endswith((".md", ".txt", ".rst"))]
    order = sorted((path for path in files if score[path]), key=lambda path: (-score[path], path))
    return (order or explaining or files)[:_MOST_READ]


def _findings(hits: list[Hit], read: list[CallResult]) -> list[Hit]:
    texts = {hit.path: hit for page in read for hit in lines_in(page)}
    quote = sorted((hit for hit in hits if hit.path in texts), key=lambda hit: hit.text.startswith("#"))
    return quote[:12] or [line for page in read for line in lines_in(page) if line.text.strip()][:6]


def _answer(question: str, findings: Sequence[object], gaps: list[str], name: str) -> str:
    if not findings:
        return f'Nothing in the sources answers "{question}". {" ".join(gaps)} The report is in {name}.'
    listed = "\n".join(f"- {hit}" for hit in findings[:5])
    gap = f"\n\nGaps: {' '.join(gaps)}" if gaps else ""
    where = f"The whole report with {len(findings)} findings is in {name}."
    return f'On "{question}" the sources say:\n{listed}{gap}\n\n{where}'


def _layout(question: str, findings: Sequence[object], gaps: list[str], sources: list[str]) -> str:
    lines = ["# Report", "", f"Question: {question}", "", "## Answer", ""]
    lines.append(
        f"{len(findings)} relevant passages; the first is {findings[0]}." if findings else "No source answers it."
    )
    lines += ["", "## Findings", "", *(f"- {hit}" for hit in findings)]
    lines += ["", "## Contradictions and gaps", "", *(f"- {gap}" for gap in gaps or ["None that the search showed."])]
    return "\n".join([*lines, "", "## Sources", "", *sources, ""])


def _extent(source: CallResult) -> str:
    numbered = lines_in(source)
    return f"{format_count(len(numbered), 'line')} read" if numbered else f'"{" ".join(source.text.split())[:120]}"'
