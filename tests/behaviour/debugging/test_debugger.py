"""`errand replay --debug` at a terminal: the debugger stops in the loop at the chosen step."""

import asyncio
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

from settings import ROOT

HISTORY = ROOT / "tests" / "histories" / "tool_loop.json"
PROMPT = b"(Pdb) "


class Terminal:
    """The command at a new terminal: it types lines and reads the output up to the next prompt."""

    def __init__(self, *arguments: str) -> None:
        self.screen, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cli", "replay", *arguments],
            cwd=ROOT,
            env={"PATH": os.defpath, "TERM": "dumb"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def until(self, text: bytes, seconds: float = 60) -> str:
        seen, give_up = b"", time.monotonic() + seconds
        while text not in seen:
            assert time.monotonic() < give_up, seen.decode()
            if select.select([self.screen], [], [], 0.2)[0]:
                seen += os.read(self.screen, 10_000)
        return seen.decode()

    def type(self, line: str) -> str:
        os.write(self.screen, f"{line}\n".encode())
        return self.until(PROMPT)

    def end(self, line: str) -> int:
        os.write(self.screen, f"{line}\n".encode())
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()
            os.close(self.screen)


def session(history: Path) -> None:
    terminal = Terminal(str(history), "--debug", "--step", "2")
    opened = terminal.until(PROMPT)
    assert "loop.py" in opened and "await take_step(session, line" in opened
    assert "2" in terminal.type("p line.step")
    assert "1" in terminal.type("p state.usage.llm_calls")
    assert "decision = decide_next(reply)" in terminal.type("n")
    assert "StopReason.TOOL_CALLS" in terminal.type("p reply.stop_reason")
    assert terminal.end("c") == 0


async def test_debugger_stops_in_the_loop_at_the_chosen_step() -> None:
    await asyncio.to_thread(session, HISTORY)
