"""The Python client against the real stack: each operation, and its behaviour while the API is killed."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from errand import AsyncErrand, Conflict, Errand, Invalid, NotAllowed, NotFound
from errand.events import Ended, Event, MessageDelta
from errand.requests import Rule

from domain.ids import new_id
from settings import ROOT
from tests.behaviour.docs.test_docs import Block, blocks
from tests.behaviour.supervision.people import AGENTS
from tests.support.stack import Stack, steps

SAY = "[[script:say words=60 delay=0.1]]"
TOOL = {"name": "look_up", "description": "Looks an order up.", "input_schema": {"type": "object"}}


def local(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client without address and key, as in a program on the machine of the stack."""
    for name in ("ERRAND_URL", "ERRAND_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ERRAND_DATA_DIR", str(stack.root))


async def test_program_submits_reconnects_and_fetches_the_artifacts(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    local(stack, monkeypatch)
    (tmp_path / "in.txt").write_text("given")

    def program() -> None:
        script = steps([("read_file", {"path": "in.txt"})], [("save_artifact", {"path": "in.txt", "type": "report"})])
        with Errand() as errand:
            handle = errand.submit("tester", script, files=[tmp_path / "in.txt"], title="One")
            same = errand.submit("tester", "Twice?", idempotency_key="client-twice")
            assert errand.submit("tester", "Twice?", idempotency_key="client-twice").task_id == same.task_id
            with pytest.raises(Conflict, match="not-terminal"):
                errand.result(errand.submit("tester", SAY))
        with Errand() as errand:
            result = errand.wait(handle.task_id, timeout=60)
            assert result.completed and result.usage.tool_invocations == 2 and "given" in str(result.output)
            assert [line.type for line in result.audit_log][-1] == "task_completed"
            [artifact] = result.artifacts
            assert errand.download(artifact, to=tmp_path / "out.txt") == b"given"
            assert (tmp_path / "out.txt").read_text() == "given"
            assert errand.task(handle).title == "One" and errand.task(handle).ended
            newest = [task.task_id for task, _ in zip(errand.tasks(limit=2), range(3), strict=False)]
            assert len(set(newest)) == 3 and handle.task_id in newest  # the list has two pages
            events = list(errand.stream(handle))
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert isinstance(events[-1], Ended) and events[-1].status == "completed"
            assert [event.seq for event in errand.stream(handle, after=events[-3].seq)] == [
                event.seq for event in events[-2:]
            ]
            assert list(errand.stream(handle, after=events[-1].seq)) == []

    await asyncio.to_thread(program)


async def test_a_stream_and_a_wait_outlive_the_api(stack: Stack) -> None:
    async with AsyncErrand(stack.url) as watching, AsyncErrand(stack.url) as waiting, AsyncErrand(stack.url) as other:
        task = await watching.submit("tester", SAY)
        wait = asyncio.create_task(waiting.wait(task))
        seen: list[Event] = []
        killed = meanwhile = None
        text = f"Meanwhile {new_id()}."  # unique, because other tests have tasks in the same stack
        async for event in watching.stream(task):
            seen.append(event)
            if killed is None and isinstance(event, MessageDelta):
                before = await stack.kill("api")
                # the client repeats the request until the API is available
                meanwhile = asyncio.create_task(other.submit("tester", text))
                killed = asyncio.create_task(stack.back("api", before))
        assert killed is not None and meanwhile is not None
        await killed
        assert (await wait).completed
        assert [event.seq for event in seen] == [event["seq"] for event in await stack.events(task.task_id)]
        accepted = await meanwhile
        assert (await other.wait(accepted)).completed
        titles = [one.title async for one in other.tasks(text=text)]
        assert len(titles) == 1  # one task, however often the request was sent


async def test_a_program_answers_approves_steers_and_cancels(stack: Stack) -> None:
    for agent in AGENTS[:1]:
        assert (await stack.http.put(f"/agents/{agent['name']}", json=agent)).is_success
    async with AsyncErrand(stack.url) as errand:
        script = steps([("look_up", {"order": 1})], [("bash", {"command": "echo approved"})])
        rules: list[Rule] = [{"permission": "bash", "action": "ask"}]
        task = await errand.submit("asker", script, config={"external_tools": [TOOL]}, permissions=rules)
        async for event in errand.stream(task):
            if event.type == "input_required" and event.data["kind"] == "external_result":
                await errand.answer(task, {"result": "paid"})
            elif event.type == "input_required":
                [request] = await errand.input_requests(task)
                assert request.details["arguments"] == {"command": "echo approved"}
                await errand.approve(task, request=request)
        output = str((await errand.result(task)).output)
        assert "paid" in output and "approved" in output
        long = await errand.submit("tester", SAY)
        await errand.steer(long, "Be brief.")
        assert (await errand.cancel(long, "no longer needed")).task_id == long.task_id
        ended = await errand.wait(long)
        assert (ended.status, ended.reason, ended.completed) == ("cancelled", "caller_cancel", False)
        again = await errand.send(task.conversation_id, "And now?")
        assert (await errand.wait(again)).completed
        with pytest.raises(Invalid, match="mailbox"):
            await errand.fire(task.conversation_id)


async def test_refusals_are_exceptions_with_the_problem(stack: Stack) -> None:
    async with AsyncErrand(stack.url) as errand, AsyncErrand(stack.url, key="ek_wrong") as stranger:
        with pytest.raises(NotFound) as unknown:
            await errand.task("01m7h5pjrzy5zk03zj8xz0xsa9")
        assert unknown.value.body["status"] == 404
        with pytest.raises(Invalid) as invalid:
            await errand.submit("tester", "x", config={"ttl": 1})
        assert invalid.value.errors[0]["pointer"] == "/config/ttl"
        with pytest.raises(NotAllowed):
            await stranger.task("01m7h5pjrzy5zk03zj8xz0xsa9")
        with pytest.raises(NotFound):
            [event async for event in errand.stream("01m7h5pjrzy5zk03zj8xz0xsa9")]


@pytest.mark.parametrize(
    "sample",
    [block for block in blocks("docs/client.md") if block.info.startswith("python")],
    ids=lambda block: block.info.removeprefix("python file="),
)
async def test_samples_of_the_page_run(stack: Stack, tmp_path: Path, sample: Block) -> None:
    env = {**os.environ, **stack.env, "PYTHONPATH": str(ROOT / "client")}
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", sample.text),
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(program.communicate(), 120)
    assert program.returncode == 0, output.decode()[-3_000:]
