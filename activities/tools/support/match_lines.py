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
    most = int(sys.argv[2])
    hits: list[str] = []
    while header := sys.stdin.buffer.read(8):
        name_size, size = struct.unpack("<II", header)
        name = sys.stdin.buffer.read(name_size).decode(errors="replace")
        text = sys.stdin.buffer.read(size).decode(errors="replace")
        for number, line in enumerate(text.split("\n"), start=1):
            if pattern.search(line[:_LONGEST_LINE]):
                if len(hits) == most:
                    return _answer({"hits": hits, "more": True})
                hits.append(f"{name}:{number}: {line[:_SHOWN].strip()}")
    _answer({"hits": hits, "more": False})


def _answer(answer: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
