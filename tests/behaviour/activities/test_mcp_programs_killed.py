"""kill -9 of the worker in the middle of calls of MCP servers that are programs."""

import asyncio
import sys
from pathlib import Path

from domain.ids import new_id
from tests.support import mcp_program
from tests.support.stack import Stack, calls, eventually, of_type


def running(argument: str) -> list[str]:
    """The processes of this machine that have the argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if argument.encode() in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
        except OSError:  # it has just ended
            continue
    return found


async def test_call_of_a_program_is_repeated_only_if_it_reads_and_no_program_is_left(stack: Stack) -> None:
    name = f"killed-{new_id()[-6:]}"
    server = {"command": [sys.executable, "-P", mcp_program.__file__, name]}
    servers = {"write": server, "read": {**server, "effects": {"note": "read"}}}
    body = {"name": name, "description": "x", "prompt": "x", "mcp_servers": servers}
    (await stack.http.put(f"/agents/{name}", json=body)).raise_for_status()
    write, read = [
        await stack.submit(calls((f"mcp__{one}__note", {"text": "x", "until": "go"})), name) for one in servers
    ]
    notes = {one: stack.workspace(one) / "note.txt" for one in (write, read)}

    async def noted(times: int, *tasks: str) -> bool:
        return all(notes[one].exists() and notes[one].read_text() == "x" * times for one in tasks)

    await eventually(lambda: noted(1, write, read), what="both programs are in the middle of their calls")
    first = await asyncio.to_thread(running, name)
    assert first
    died = await stack.kill("worker")
    await stack.back("worker", died)
    assert (await stack.wait(write))["status"] == "completed"
    await eventually(lambda: noted(2, read), what="the call that reads is made again")
    left = await asyncio.to_thread(running, name)
    assert left and not {*left} & {*first}  # only the second program of the call that reads
    (stack.workspace(read) / "go").touch()
    assert (await stack.wait(read))["status"] == "completed"
    assert not await asyncio.to_thread(running, name)

    assert await noted(1, write) and await noted(2, read)
    for task_id, state in ((write, "unknown"), (read, "ok")):
        events = await stack.events(task_id)
        assert [event["state"] for event in of_type(events, "tool_returned")] == [state]
        assert len(of_type(events, "tool_called")) == 1
    assert "The outcome of this call is unknown" in str(await stack.asked(write))
    assert "wrote x" in str(await stack.asked(read))
