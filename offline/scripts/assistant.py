"""The assistant at work: a small program, a look around, a subagent, a question; other requests, an honest answer."""

import re

from offline.conversation import Conversation, Result
from offline.markers import Marker, without_markers
from offline.reply import Call, Reply, Story
from offline.scripts.demo import (
    Plan,
    bash,
    files_in,
    gist,
    lines_in,
    list_files,
    many,
    output,
    progress,
    quoted_request,
    read_file,
    save,
    with_notes,
    write_file,
)
from offline.scripts.unknown import honest_answer

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
_MOST = 75  # beyond that awk's numbers are no longer exact
_LOOKING = re.compile(
    r"\b(files?|folders?|workspace|directory|repository|readme|look around)\b|\w\.(md|txt|csv|json|ya?ml|py|log)\b",
    re.IGNORECASE,
)


_ASKS = re.compile(r"\b(?:ask|have|let|tell|send)\s+(?:the\s+|a\s+)?researcher\s+(?:to\s+)?(\S.*)", re.I | re.S)
_ASKS_ME = re.compile(r"\bask me\b")
_MAIL = re.compile(r"Async subagent (?:results:|'[^']+' \(session: \S+\) (?:completed|failed):)")


def tell(conversation: Conversation, marker: Marker) -> Story:
    if _MAIL.match(conversation.request):
        yield Reply(text=_delivered(conversation))
        return
    if asked := _ASKS.search(without_markers(conversation.request)):
        yield from _hand_on(conversation, asked[1].strip())
        return
    words = without_markers(conversation.request).lower()
    kind = next((kind for kind, pattern in _ASKED.items() if re.search(pattern, words)), None)
    if kind and _ASKS_ME.search(words):
        yield from _ask_and_build(conversation, kind)
    elif kind:
        yield from _build(conversation, kind, words)
    elif _LOOKING.search(words):
        yield from _look(conversation)
    else:
        yield Reply(text=honest_answer(conversation))


def _hand_on(conversation: Conversation, question: str) -> Story:
    """The researcher works on its own; the outcome waits in the mailbox, so there is nothing to wait for here."""
    [handed] = yield Reply(
        text="That is for the researcher.",
        calls=(Call("async_delegate", {"name": "researcher", "prompt": question}),),
    )
    if handed.is_error:
        answer = f"The researcher could not be asked: {gist(handed)}"
    else:
        answer = f"{handed.text}. It works on its own; fire the mailbox when it has reported, and I go on from there."
    yield Reply(text=with_notes(answer, conversation))


def _delivered(conversation: Conversation) -> str:
    """What subagents reported, and what the caller says to it."""
    mail, _, words = conversation.request.partition("\n\n---\nUser message:\n")
    more = f'\n\nYou added: "{" ".join(words.split())[:200]}"' if words else ""
    return f"This has come back:\n\n{mail[:3_000]}{more}"


def _ask_and_build(conversation: Conversation, kind: str) -> Story:
    wanted = {"type": "integer", "minimum": 1, "maximum": _MOST}
    question = {"question": f"How many {kind} numbers do you want?", "answer_schema": wanted, "default": 10}
    [answer] = yield Reply(text="How many is yours to say.", calls=(Call("ask_user", question),))
    if answer.is_error:
        yield Reply(text=with_notes(f"You were to say how many, and I have no answer: {answer.text}", conversation))
        return
    yield from _build(conversation, kind, answer.text)


def _build(conversation: Conversation, kind: str, words: str) -> Story:
    number = re.search(r"\b([1-9]\d{0,5})\b", words)
    limit = min(int(number[1]) if number else 20, _MOST)
    name = f"{kind}s.py" if kind != "fibonacci" else "fibonacci.py"
    plan = Plan(["Look at the workspace", f"Write {name}", "Run it", "Hand over the result"])
    _, listing = yield Reply(
        text=f"I will write a program for the first {limit} {kind} numbers, run it and hand over what it prints.",
        thinking="A result that was computed and checked is worth more than one from memory.",
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
    yield from _hand_over(conversation, plan, name, kind, wrote, attempts, numbers)


def _without_result(name: str, wrote: Result, tried: str) -> str:
    if wrote.text.startswith("Dry run:"):
        return f"A dry run: I would have written {name} and run it. Nothing of it was done."
    if wrote.is_error:
        return f"{name} could not be written, so there is no result: {gist(wrote)}\n{tried}"
    return f"{name} is written, but it was not run, so there is no result.\n{tried}"


def _hand_over(
    conversation: Conversation,
    plan: Plan,
    name: str,
    kind: str,
    wrote: Result,
    attempts: list[Result],
    numbers: list[str],
) -> Story:
    tried = "\n".join(f"- `{ran.input.get('command')}`: {gist(ran) if ran.is_error else 'worked'}" for ran in attempts)
    if not numbers:
        reason = f"No command could run here: {gist(attempts[-1])}"
        yield Reply(calls=(plan.change(reason=reason), save(name, "The program", "file")))
        yield Reply(text=with_notes(_without_result(name, wrote, tried), conversation))
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
    yield Reply(text=with_notes(f"{answer}\n\n{name} and result.md are saved.", conversation))


def _look(conversation: Conversation) -> Story:
    plan = Plan(["List the workspace", "Read what explains it", "Measure it"])
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
        yield Reply(text=with_notes(f"{reason}; there is nothing to describe. {seen}", conversation))
        return
    request = quoted_request(conversation)
    chosen = sorted(files, key=lambda name: (name not in request, "readme" not in name.lower(), name.count("/"), name))[
        :3
    ]
    _, *pages = yield Reply(
        text=f"{many(len(files), 'file')}. Reading {', '.join(chosen)}.", calls=(plan.tick(), *map(read_file, chosen))
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
            f"{page.input['path']} has {len(lines_in(page))} lines" for page in pages if not page.is_error
        )
    else:
        measured = output(ran)[-600:]
    yield Reply(calls=(plan.tick(), progress("Measured", 90)))
    first = [line for page in pages if (line := _first_words(page))]
    listed = ", ".join(files[:20])
    answer = (
        f"The workspace has {many(len(files), 'file')}: {listed}.\n\n" + "\n".join(first) + f"\n\nLines:\n{measured}"
    )
    yield Reply(text=with_notes(answer, conversation))


def _first_words(page: Result) -> str:
    words = [line for line in lines_in(page) if line.text.strip()]
    return f"- {page.input['path']} begins: {words[0]}" if words else f"- {page.input['path']}: {gist(page)}"
