"""The assistant: writes a program for primes, looks around, asks a subagent or the user; else says that it cannot."""

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

_NAME = "primes.py"
_PROGRAM = """#!/usr/bin/env python3
found = []
n = 2
while len(found) < {}:
    if all(n % prime for prime in found):
        found.append(n)
        print(n)
    n += 1
"""
_MOST = 75
_PRIMES = re.compile(r"\bprimes\b|\bprime numbers?\b", re.IGNORECASE)
_LOOKING = re.compile(
    r"\b(files?|folders?|workspace|directory|repository|readme|look around)\b|\w\.(md|txt|csv|json|ya?ml|py|log)\b",
    re.IGNORECASE,
)
_ASKS = re.compile(r"\b(?:ask|have|let|tell|send)\s+(?:the\s+|a\s+)?researcher\s+(?:to\s+)?(\S.*)", re.I | re.S)
_ASKS_ME = re.compile(r"\bask me\b", re.IGNORECASE)
_MAIL = re.compile(r"Async subagent (?:results:|'[^']+' \(session: \S+\) (?:completed|failed):)")


def replies(transcript: Transcript, marker: Marker) -> Replies:
    if _MAIL.match(transcript.request):
        # the outcomes of subagents, and the user's message after them
        mail, _, message = transcript.request.partition("\n\n---\nUser message:\n")
        added = f'\n\nYou added: "{" ".join(message.split())[:200]}"' if message else ""
        yield Reply(text=f"This has come back:\n\n{mail[:3_000]}{added}")
        return
    request = without_markers(transcript.request)
    if asked := _ASKS.search(request):
        yield from _delegate(transcript, asked[1].strip())
    elif _PRIMES.search(request) and _ASKS_ME.search(request):
        yield from _ask_and_build(transcript)
    elif _PRIMES.search(request):
        yield from _build(transcript, request)
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


def _ask_and_build(transcript: Transcript) -> Replies:
    wanted = {"type": "integer", "minimum": 1, "maximum": _MOST}
    question = {"question": "How many prime numbers do you want?", "answer_schema": wanted, "default": 10}
    [answer] = yield Reply(text="You decide how many.", calls=(ToolUse("ask_user", question),))
    if answer.is_error:
        yield Reply(text=with_notes(f"I asked how many, and have no answer: {answer.text}", transcript))
        return
    yield from _build(transcript, answer.text)


def _build(transcript: Transcript, request: str) -> Replies:
    number = re.search(r"\b([1-9]\d{0,5})\b", request)
    limit = min(int(number[1]) if number else 20, _MOST)
    plan = DemoPlan(["Look at the workspace", f"Write {_NAME}", "Run it", "Hand over the result"])
    _, listing = yield Reply(
        text=f"I will write a program for the first {limit} prime numbers, run it and hand over what it prints.",
        thinking="A computed and checked result is better than one from memory.",
        calls=(plan.call(), list_files()),
    )
    taken = _NAME in files_in(listing)
    _, wrote = yield Reply(
        text=f"{_NAME} is there already; I replace it." if taken else f"There is no {_NAME} yet.",
        calls=(plan.tick(), write_file(_NAME, _PROGRAM.format(limit))),
    )
    _, ran = yield Reply(text="Running it.", calls=(plan.tick(), bash(f"./{_NAME}")))
    attempts = [ran]
    if ran.is_error:
        reason = f"`{ran.input.get('command')}` failed: {gist(ran)}"
        _, _, again = yield Reply(
            text=f"That failed ({gist(ran)}). I try it with the interpreter.",
            thinking=f"{reason}. The same command would fail again; another way may not.",
            calls=(
                plan.change("Run it with the interpreter", "Hand over the result", reason=reason),
                progress(reason[:150], 50),
                bash(f"python3 {_NAME}"),
            ),
        )
        attempts.append(again)
    yield from _hand_over(transcript, plan, wrote, attempts)


def _hand_over(transcript: Transcript, plan: DemoPlan, wrote: CallResult, attempts: list[CallResult]) -> Replies:
    tried = "\n".join(f"- `{ran.input.get('command')}`: {gist(ran) if ran.is_error else 'worked'}" for ran in attempts)
    last = attempts[-1]
    numbers = [] if last.is_error else re.findall(r"^\d+$", last.text, re.MULTILINE)
    if not numbers:
        reason = f"No command could run here: {gist(last)}"
        yield Reply(calls=(plan.change(reason=reason), save(_NAME, "The program", "file")))
        yield Reply(text=with_notes(_without_result(wrote, tried), transcript))
        return
    result = f"# The first {len(numbers)} prime numbers\n\n{', '.join(numbers)}\n\nComputed so:\n{tried}\n"
    yield Reply(
        calls=(
            plan.tick(),
            progress(f"{len(numbers)} numbers, the last is {numbers[-1]}", 80),
            write_file("result.md", result),
        )
    )
    saved = save("result.md", f"The first {len(numbers)} prime numbers"), save(_NAME, "The program", "file")
    yield Reply(calls=(*saved, plan.tick()))
    answer = f"The program printed {len(numbers)} prime numbers: {', '.join(numbers)}.\n\nHow it went:\n{tried}"
    yield Reply(text=with_notes(f"{answer}\n\n{_NAME} and result.md are saved.", transcript))


def _without_result(wrote: CallResult, tried: str) -> str:
    if wrote.text.startswith("Dry run:"):
        return f"A dry run: I would have written {_NAME} and run it. Nothing was done."
    if wrote.is_error:
        return f"{_NAME} could not be written, so there is no result: {gist(wrote)}\n{tried}"
    return f"{_NAME} is written, but it was not run, so there is no result.\n{tried}"


def _look(transcript: Transcript) -> Replies:
    plan = DemoPlan(["List the workspace", "Read what explains it", "Measure it"])
    _, listing = yield Reply(text="Looking around.", calls=(plan.call(), list_files()))
    files = files_in(listing)
    if not files:
        reason = f"The workspace cannot be listed: {gist(listing)}" if listing.is_error else "The workspace is empty"
        yield Reply(calls=(plan.change(reason=reason, done=True),))
        yield Reply(text=with_notes(f"{reason}; there is nothing to describe.", transcript))
        return
    request = quote_request(transcript)
    order = sorted(files, key=lambda name: (name not in request, "readme" not in name.lower(), name.count("/"), name))
    chosen = order[:3]
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
    measured = f"They could not be counted: {gist(ran)}" if ran.is_error else output(ran)[-600:]
    yield Reply(calls=(plan.tick(), progress("Measured", 90)))
    first = "\n".join(map(_first_line, pages))
    answer = f"The workspace has {format_count(len(files), 'file')}: {', '.join(files[:20])}.\n\n{first}"
    yield Reply(text=with_notes(f"{answer}\n\nLines:\n{measured}", transcript))


def _first_line(page: CallResult) -> str:
    lines = [line for line in lines_in(page) if line.text.strip()]
    return f"- {page.input['path']} begins: {lines[0]}" if lines else f"- {page.input['path']}: {gist(page)}"
