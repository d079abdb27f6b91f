"""A data directory of an earlier version, taken over by this one (by hand: `python -m tests.faults.previous_version
COMMIT`). The earlier version runs from a checkout of its commit, is killed amid its tasks, and this one continues."""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
import httpx2
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client

from deploy import local
from deploy.child import tail
from deploy.environment import variables
from settings import ROOT, Settings
from tests.support.launch import free_port, home, offline_model
from tests.support.stack import calls, eventually, steps

TOOL = {"name": "look_up", "description": "Looks up.", "input_schema": {"type": "object"}}
TASKS: dict[str, dict[str, Any]] = {
    "ended": {"input": "[[script:say text=old]]"},
    "with subagents": {"agent": "orchestrator", "input": "What do the notes say?", "context": {"notes": ["none"]}},
    "amid its steps": {"input": "[[script:count n=60 tool=report_progress]]"},
    "in a command": {"input": steps([("bash", {"command": "sleep 8; echo done"})], [("list_files", {})])},
    "waits for an answer": {"input": calls(("look_up", {})), "config": {"external_tools": [TOOL]}},
}


@asynccontextmanager
async def running(checkout: Path, settings: Settings, log: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """`errand up` of a checkout, killed at the end."""
    known = {name: value for name, value in variables(settings).items() if name in KNOWN}
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
            [sys.executable, "-m", "deploy.local"], cwd=checkout, env={**known, "PATH": "/usr/bin:/bin"},
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
        process.kill()  # everything that it started dies with it
        process.wait()


KNOWN = {"ERRAND_DATA_DIR", "ERRAND_PORT", "ERRAND_WORKSPACES_DIR", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"}


async def take_over(old: Path) -> dict[str, str]:
    """Every task's end under this version."""
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
        async with running(ROOT, settings, folder / "new.log") as http:
            found = (await http.get(f"/tasks/{ids['waits for an answer']}/input-requests")).json()["items"]
            body = {"response_to": found[0]["id"], "input": {"result": "blue"}} if found else {}
            answered = await http.post(f"/tasks/{ids['waits for an answer']}/input", json=body)
            click.echo(f"the answer to the old question: {answered.status_code}", err=True)
            await _wait(http, ids, seconds=60)
            ends = {kind: await _status(http, task_id) for kind, task_id in ids.items()}
            stuck = {kind: ids[kind] for kind, end in ends.items() if end.startswith("working")}
            if stuck:  # this version cannot replay what the earlier one recorded; another run can continue
                await _delete_workflows(settings, list(stuck.values()))
                await _wait(http, stuck, seconds=300)
                for kind, task_id in stuck.items():
                    ends[kind] += f", and after its workflow was deleted {await _status(http, task_id)}"
            fresh = await http.post("/tasks", json={"agent": "assistant", "input": "[[script:say text=new]]"})
            await eventually(lambda: _ended(http, fresh.json()["task_id"]), what="a new task ends")
            ends["submitted afterwards"] = await _status(http, fresh.json()["task_id"])
        return ends


async def _wait(http: httpx2.AsyncClient, ids: dict[str, str], seconds: float) -> None:
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up and not all([await _ended(http, task_id) for task_id in ids.values()]):  # noqa: ASYNC110
        await asyncio.sleep(2)


async def _delete_workflows(settings: Settings, ids: list[str]) -> None:
    info = local.status(settings)
    assert info is not None
    client = await Client.connect(info.temporal_address)
    for task_id in ids:
        execution = WorkflowExecution(workflow_id=f"session/{task_id}")
        request = DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
        await client.workflow_service.delete_workflow_execution(request)


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
