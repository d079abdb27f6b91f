"""Matches the lines of files given on standard input. It is a separate script so that search_files can stop it."""

import json
import re
import struct
import sys

_LONGEST_LINE, _SHOWN = 20_000, 300


def main() -> None:
    try:
        pattern = re.compile(json.loads(sys.argv[1]))
    except (re.error, RecursionError, OverflowError) as error:
        return _answer({"error": str(error)})
    most, room, context = map(int, sys.argv[2:5])
    output: list[str] = []
    shown = 0
    while header := sys.stdin.buffer.read(8):
        name_size, size = struct.unpack("<II", header)
        name = sys.stdin.buffer.read(name_size).decode(errors="replace")
        lines = sys.stdin.buffer.read(size).decode(errors="replace").removesuffix("\n").split("\n")
        matching: set[int] = set()
        for number, line in enumerate(lines):
            if pattern.search(line[:_LONGEST_LINE]):
                matching.add(number)
                if shown + len(matching) > most:
                    break
        near = {one for at in matching for one in range(max(0, at - context), min(len(lines), at + context + 1))}
        for number in sorted(near):
            hit = number in matching
            mark = ":" if hit else "-"
            text = f"{name}{mark}{number + 1}{mark} {lines[number][:_SHOWN].rstrip()}"
            if context and output and number - 1 not in near:
                output.append("--")
            room -= len(text) + 4
            if room < 0 or (hit and shown == most):
                return _answer({"hits": output, "shown": shown, "more": True})
            output.append(text)
            shown += hit
    _answer({"hits": output, "shown": shown, "more": False})


def _answer(answer: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
