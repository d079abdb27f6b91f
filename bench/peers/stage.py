"""The process of a contestant: it reads a number of steps from stdin, and answers each line with one line of JSON."""

import asyncio
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO


async def serve(module: str, answers: TextIO) -> None:
    def say(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    where = json.loads(sys.stdin.readline())  # on stdin and not in argv: the database's address has a password
    if where["streamed"]:
        vars(importlib.import_module("bench.peers.asking"))["streams"] = True
    async with importlib.import_module(module).contestant(where["temporal"], where["database"]) as run:
        say(ready=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            try:
                say(**(await run(int(line)))._asdict())
            except Exception as error:
                say(failed=_reason(error))


def _reason(error: BaseException) -> str:
    """The innermost cause, which is the real one; the outer ones only wrap it."""
    while inner := getattr(error, "cause", None) or error.__cause__:
        error = inner
    return f"{type(error).__name__}: {error}".splitlines()[0]


if __name__ == "__main__":
    own = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries is written to the log
    # appended, unlike PYTHONPATH: OpenAI's package and one of our folders are both called `agents`
    sys.path.append(str(Path(__file__).parents[2]))
    asyncio.run(serve(sys.argv[1], own))
