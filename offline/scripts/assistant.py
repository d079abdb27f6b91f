"""The assistant: writes a small program, looks around, asks a subagent or the user; else says that it cannot."""

import re

from offline.markers import Marker, without_markers
from offline.reply import Replies, Reply, ToolUse
from offline.scripts.demo import (
    DemoPlan,
    bash,
    files_in,
    format_count,
    gist,
    lines_in,
    list_files,
    output,
    progress,
    quote_request,
    read_file,
    save,
    with_notes,
    write_file,
)
from offline.scripts.marked import honest_answer
from offline.transcript import CallResult, Transcript

_PYTHON = {
    "prime": "found = []\nn = 2\nwhile len(found) < LIMIT:\n    if all(n % prime for prime in found):\n"
    "        found.append(n)\n        print(n)\n    n += 1\n",
    "square": "for n in range(1, LIMIT + 1):\n    print(n * n)\n",
    "fibonacci": "a, b = 0, 1\nfor _ in range(LIMIT):\n    a, b = b, a + b\n    print(a)\n",
}
_AWK = {
    "prime": "for (n = 2; k < L; n++) { for (d = 2; d * d <= n && n % d; d++); if (d * d > n) { print n; k++ } }",
    "square": "for (n = 1; n <= L; n++) print n * n",
    "fibonacci": "a = 0; b = 1; for (n = 1; n <= L; n++) { print b; t = a + b; a = b; b = t }",
}
_ASKED = {
    "prime": r"\bprimes\b|\bprime numbers?\b",
    "square": r"\bsquares\b|\bsquare numbers?\b",
    "fibonacci": "fibonacci",
}
_MOST = 75  # awk computes exactly up to this number
_LOOKING = re.compile(
    r"\b(files?|folders?|workspace|directory|repository|readme|look around)\b|\w\.(md|txt|csv|json|ya?ml|py|log)\b",
    re.IGNORECASE,
)


_ASKS = re.compile(r"\b(?:ask|have|let|tell|send)\s+(?:the\s+|a\s+)?researcher\s+(?:to\s+)?(\S.*)", re.I | re.S)
_ASKS_ME = re.compile(r"\bask me\b")
_MAIL = re.compile(r"Async subagent (?:results:|'[^']+' \(session: \S+\) (?:completed|failed):)")


def replies(transcript: Transcript, marker: Marker) -> Replies:
    if _MAIL.match(transcript.request):
        # the outcomes of subagents, and the user's message after them
        mail, _, message = transcript.request.partition("\n\n---\nUser message:\n")
        added = f'\n\nYou added: "{" ".join(message.split())[:200]}"' if message else ""
        yield Reply(text=f"This has come back:\n\n{mail[:3_000]}{added}")
        return
    if asked := _ASKS.search(without_markers(transcript.request)):
        yield from _delegate(transcript, asked[1].strip())
        return
    request = without_markers(transcript.request).lower()
    kind = next((kind for kind, pattern in _ASKED.items() if re.search(pattern, request)), None)
    if kind and _ASKS_ME.search(request):
        yield from _ask_and_build(transcript, kind)
    elif kind:
        yield from _build(transcript, kind, request)
    elif _LOOKING.search(request):
        yield from _look(transcript)
    else:
        yield Reply(text=honest_answer(transcript))


def _delegate(transcript: Transcript, question: str) -> Replies:
    """Start the researcher in the background and answer without waiting: its outcome goes to the mailbox."""
    [handed] = yield Reply(
        text="That is for the researcher.",
        calls=(ToolUse("async_delegate", {"name": "researcher", "prompt": question}),),
    )
    if handed.is_error:
        answer = f"The researcher could not be asked: {gist(handed)}"
    else:
        answer = f"{handed.text}. It runs in the background; fire the mailbox once it has reported, and I continue."
    yield Reply(text=with_notes(answer, transcript))


def _ask_and_build(transcript: Transcript, kind: str) -> Replies:
    wanted = {"type": "integer", "minimum": 1, "maximum": _MOST}
    question = {"question": f"How many {kind} numbers do you want?", "answer_schema": wanted, "default": 10}
    [answer] = yield Reply(text="You decide how many.", calls=(ToolUse("ask_user", question),))
    if answer.is_error:
        yield Reply(text=with_notes(f"I asked how many, and have no answer: {answer.text}", transcript))
        return
    yield from _build(transcript, kind, answer.text)


def _build(transcript: Transcript, kind: str, request: str) -> Replies:
    number = re.search(r"\b([1-9]\d{0,5})\b", request)
    limit = min(int(number[1]) if number else 20, _MOST)
    name = f"{kind}s.py" if kind != "fibonacci" else "fibonacci.py"
    plan = DemoPlan(["Look at the workspace", f"Write {name}", "Run it", "Hand over the result"])
    _, listing = yield Reply(
        text=f"I will write a program for the first {limit} {kind} numbers, run it and hand over what it prints.",
        thinking="A computed and checked result is better than one from memory.",
        calls=(plan.call(), list_files()),
    )
    taken = name in files_in(listing)
    program = f"#!/usr/bin/env python3\nLIMIT = {limit}\n\n{_PYTHON[kind]}"
    _, wrote = yield Reply(
        text=f"{name} is there already; I replace it." if taken else f"There is no {name} yet.",
        calls=(plan.tick(), write_file(name, program)),
    )
    _, ran = yield Reply(text="Running it.", calls=(plan.tick(), bash(f"./{name}")))
    attempts = [ran]
    for command in (f"python3 {name}", f"awk 'BEGIN {{ L = {limit}; {_AWK[kind]} }}'"):
        if not attempts[-1].is_error:
            break
        reason = f"`{attempts[-1].input.get('command')}` failed: {gist(attempts[-1])}"
        how = "with the interpreter" if command.startswith("python3") else "with awk instead of Python"
        _, _, ran = yield Reply(
            text=f"That failed ({gist(attempts[-1])}). I try it {how}.",
            thinking=f"{reason}. The same command would fail again; another way may not.",
            calls=(
                plan.change(f"Run it {how}", "Hand over the result", reason=reason),
                progress(reason[:150], 50),
                bash(command),
            ),
        )
        attempts.append(ran)
    numbers = [] if ran.is_error else re.findall(r"^\d+$", ran.text, re.MULTILINE)
    yield from _hand_over(transcript, plan, name, kind, wrote, attempts, numbers)


def _without_result(name: str, wrote: CallResult, tried: str) -> str:
    if wrote.text.startswith("Dry run:"):
        return f"A dry run: I would have written {name} and run it. Nothing was done."
    if wrote.is_error:
        return f"{name} could not be written, so there is no result: {gist(wrote)}\n{tried}"
    return f"{name} is written, but it was not run, so there is no result.\n{tried}"


def _hand_over(
    transcript: Transcript,
    plan: DemoPlan,
    name: str,
    kind: str,
    wrote: CallResult,
    attempts: list[CallResult],
    numbers: list[str],
) -> Replies:
    tried = "\n".join(f"- `{ran.input.get('command')}`: {gist(ran) if ran.is_error else 'worked'}" for ran in attempts)
    if not numbers:
        reason = f"No command could run here: {gist(attempts[-1])}"
        yield Reply(calls=(plan.change(reason=reason), save(name, "The program", "file")))
        yield Reply(text=with_notes(_without_result(name, wrote, tried), transcript))
        return
    result = f"# The first {len(numbers)} {kind} numbers\n\n{', '.join(numbers)}\n\nComputed so:\n{tried}\n"
    yield Reply(
        calls=(
            plan.tick(),
            progress(f"{len(numbers)} numbers, the last is {numbers[-1]}", 80),
            write_file("result.md", result),
        )
    )
    yield Reply(
        calls=(
            save("result.md", f"The first {len(numbers)} {kind} numbers"),
            save(name, "The program", "file"),
            plan.tick(),
        )
    )
    answer = f"The program printed {len(numbers)} {kind} numbers: {', '.join(numbers)}.\n\nHow it went:\n{tried}"
    yield Reply(text=with_notes(f"{answer}\n\n{name} and result.md are saved.", transcript))


def _look(transcript: Transcript) -> Replies:
    plan = DemoPlan(["List the workspace", "Read what explains it", "Measure it"])
    _, listing = yield Reply(text="Looking around.", calls=(plan.call(), list_files()))
    files = files_in(listing)
    if not files:
        reason = f"The workspace cannot be listed: {gist(listing)}" if listing.is_error else "The workspace is empty"
        _, ran = yield Reply(
            text=f"{reason}. I look at the machine instead.",
            calls=(
                plan.change("Look at the machine", reason=reason, done=True),
                bash("uname -s; date; df -h . | tail -1"),
            ),
        )
        yield Reply(calls=(plan.tick(), progress("Looked at the machine", 90)))
        seen = (
            f"The commands there could not run: {gist(ran)}"
            if ran.is_error
            else f"The sandbox says:\n{output(ran)[:600]}"
        )
        yield Reply(text=with_notes(f"{reason}; there is nothing to describe. {seen}", transcript))
        return
    request = quote_request(transcript)
    chosen = sorted(files, key=lambda name: (name not in request, "readme" not in name.lower(), name.count("/"), name))[
        :3
    ]
    _, *pages = yield Reply(
        text=f"{format_count(len(files), 'file')}. Reading {', '.join(chosen)}.",
        calls=(plan.tick(), *map(read_file, chosen)),
    )
    _, _, ran = yield Reply(
        calls=(
            plan.tick(),
            progress(f"Read {len(pages)} of {len(files)} files", 50),
            bash("wc -l $(find . -type f | head -200) | sort -n | tail -5"),
        )
    )
    if ran.is_error:
        reason = f"Counting by command failed: {gist(ran)}"
        yield Reply(calls=(plan.change("Count from what was read", reason=reason),))
        measured = "; ".join(
            f"{page.input['path']} has {format_count(len(lines_in(page)), 'line')}"
            for page in pages
            if not page.is_error
        )
    else:
        measured = output(ran)[-600:]
    yield Reply(calls=(plan.tick(), progress("Measured", 90)))
    first = [line for page in pages if (line := _first_line(page))]
    listed = ", ".join(files[:20])
    answer = (
        f"The workspace has {format_count(len(files), 'file')}: {listed}.\n\n"
        + "\n".join(first)
        + f"\n\nLines:\n{measured}"
    )
    yield Reply(text=with_notes(answer, transcript))


def _first_line(page: CallResult) -> str:
    lines = [line for line in lines_in(page) if line.text.strip()]
    return f"- {page.input['path']} begins: {lines[0]}" if lines else f"- {page.input['path']}: {gist(page)}"
