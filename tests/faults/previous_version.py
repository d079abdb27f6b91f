"""A data directory of a version before the redesign, taken over by this one (by hand: `python -m
tests.faults.previous_version COMMIT`). The earlier version runs from a checkout of its commit and is killed during its
tasks; this one refuses to start; the earlier one ends its tasks; this one starts."""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
import httpx2

from deploy.child import tail
from deploy.environment import variables
from settings import ROOT, Settings
from tests.support.launch import free_port, home, offline_model
from tests.support.stack import calls, eventually, steps

TOOL = {"name": "look_up", "description": "Looks up.", "input_schema": {"type": "object"}}
TASKS: dict[str, dict[str, Any]] = {
    "ended": {"input": "[[script:say text=old]]"},
    "with subagents": {"agent": "orchestrator", "input": "What do the notes say?", "context": {"notes": ["none"]}},
    "amid its steps": {"input": "[[script:count n=45 tool=report_progress]]"},
    "in a command": {"input": steps([("bash", {"command": "sleep 8; echo done"})], [("list_files", {})])},
    "waits for an answer": {"input": calls(("look_up", {})), "config": {"external_tools": [TOOL]}},
}


@asynccontextmanager
async def running(checkout: Path, settings: Settings, log: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """Run `errand up` from a checkout; it is killed at the end."""
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
            [sys.executable, "-m", "deploy.local"], cwd=checkout, env=_environment(settings),
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{settings.port}", timeout=20) as http:

            async def ready() -> bool:
                assert process.poll() is None, tail(log, 30)
                try:
                    return (await http.get("/readyz")).is_success
                except httpx2.TransportError:
                    return False

            await eventually(ready, seconds=120, what=f"{checkout} is up")
            yield http
    finally:
        process.kill()  # the processes that it started end with it
        process.wait()


KNOWN = {"ERRAND_DATA_DIR", "ERRAND_PORT", "ERRAND_WORKSPACES_DIR", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"}


async def take_over(old: Path) -> dict[str, str]:
    """Return how each task ended, and what this version prints while tasks of the earlier one run."""
    with home() as folder, offline_model(folder) as model_port:
        settings = Settings(
            data_dir=folder / "data", workspaces_dir=folder / "workspaces", port=free_port(),
            anthropic_api_key="k", anthropic_base_url=f"http://127.0.0.1:{model_port}",
        )  # fmt: skip
        ids: dict[str, str] = {}
        async with running(old, settings, folder / "old.log") as http:
            for kind, task in TASKS.items():
                answer = await http.post("/tasks", json={"agent": "assistant", **task})
                assert answer.status_code == 202, answer.text
                ids[kind] = answer.json()["task_id"]
                if kind == "with subagents":
                    await eventually(lambda: _ended(http, ids["with subagents"]), what="the subagents ended")
            await asyncio.sleep(3)
        ends = {"this version, meanwhile": await _refusal(settings, folder / "refused.log")}
        async with running(old, settings, folder / "old.log") as http:
            question = ids["waits for an answer"]
            found = (await http.get(f"/tasks/{question}/input-requests")).json()["items"]
            body = {"response_to": found[0]["id"], "input": {"result": "blue"}}
            assert (await http.post(f"/tasks/{question}/input", json=body)).is_success
            await eventually(lambda: _all_ended(http, ids), seconds=120, what="the earlier version ends its tasks")
        async with running(ROOT, settings, folder / "new.log") as http:
            fresh = await http.post("/tasks", json={"agent": "assistant", "input": "[[script:say text=new]]"})
            ids["submitted afterwards"] = fresh.json()["task_id"]
            await eventually(lambda: _all_ended(http, ids), what="a new task ends")
            ends |= {kind: await _status(http, task_id) for kind, task_id in ids.items()}
        return ends


async def _refusal(settings: Settings, log: Path) -> str:
    """The message with which `errand up` refuses to start."""
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "deploy.local", cwd=ROOT, env=_environment(settings), stdout=output, stderr=output
        )
        code = await asyncio.wait_for(process.wait(), 60)
    return f"exit {code}: {tail(log, 5).strip()}"


async def _all_ended(http: httpx2.AsyncClient, ids: dict[str, str]) -> bool:
    return all([await _ended(http, task_id) for task_id in ids.values()])


def _environment(settings: Settings) -> dict[str, str]:
    known = {name: value for name, value in variables(settings).items() if name in KNOWN}
    return {**known, "PATH": "/usr/bin:/bin"}


async def _status(http: httpx2.AsyncClient, task_id: str) -> str:
    record = (await http.get(f"/tasks/{task_id}")).json()
    return f"{record['status']} ({record['reason']})"


async def _ended(http: httpx2.AsyncClient, task_id: str) -> bool:
    return (await http.get(f"/tasks/{task_id}")).json()["status"] in ("completed", "failed", "cancelled")


@click.command(help=__doc__)
@click.argument("commit")
def main(commit: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old"
        subprocess.run(["git", "worktree", "add", "--detach", "--quiet", old, commit], cwd=ROOT, check=True)
        try:
            for kind, end in asyncio.run(take_over(old)).items():
                click.echo(f"{kind}: {end}")
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", old], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
