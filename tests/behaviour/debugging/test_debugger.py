"""`errand replay --debug` at a terminal: the debugger stops in the loop at the chosen step."""

import asyncio

from settings import ROOT
from tests.support.terminal import Terminal

HISTORY = ROOT / "tests" / "histories" / "tool_loop.json"
PROMPT = "(Pdb) "


def session() -> None:
    with Terminal("replay", str(HISTORY), "--debug", "--step", "2", env={}) as terminal:
        opened = terminal.expect(PROMPT)
        assert "loop.py" in opened and "await take_step(session, line" in opened
        for line, said in (
            ("p line.step", "2"),
            ("p state.usage.llm_calls", "1"),
            ("n", "decision = decide_next(reply)"),
            ("p reply.stop_reason", "StopReason.TOOL_CALLS"),
        ):
            terminal.type(line)
            assert said in terminal.expect(PROMPT)
        terminal.type("c")
        assert terminal.exit_code() == 0


async def test_debugger_stops_in_the_loop_at_the_chosen_step() -> None:
    await asyncio.to_thread(session)
