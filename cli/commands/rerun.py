"""`errand rerun`: run a task again from one of its steps, or replay its recorded answers under other rules."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from errand.models import Task

from cli.api import Api, parse, segment
from cli.commands.trace import FULL_TEXT
from cli.errors import NotFinished, Refused
from cli.ids import TaskId
from cli.options import Duration, detach_option, patience_option, permissions_option, remote
from cli.render.output import dim, emit, note, one_line, style_status
from cli.render.traces import StoppedCall, find_stopped_calls
from cli.watch import watch_or_detach
from domain.json_object import JsonObject
from domain.sessions.session import TERMINAL

LIMITS = ("max_steps", "max_tokens", "max_cost_usd", "max_tool_calls")
# a key may have only so many live tasks, and other tasks need the workers too
CONCURRENT_RERUNS = 10
PAUSE_SECONDS = 0.2


class ResultChange(click.ParamType[JsonObject, Any]):
    """A changed tool result such as `0=No such file`; the value has the form of the API."""

    name = "result"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> JsonObject:
        if isinstance(value, dict):
            return value
        index, found, text = str(value).partition("=")
        if not found or not index.isdecimal():
            self.fail(f"{value!r} is not a result; write INDEX=TEXT, the first call is 0", param, ctx)
        return {"index": int(index), "text": text}


@dataclass(frozen=True)
class RerunRequest:
    """A task to run again, and the body of the request."""

    task_id: str
    body: JsonObject


@dataclass(frozen=True)
class RerunReport:
    """The changes that rules and limits would have made to one task; as JSON, an item of `tasks`."""

    task_id: str
    rerun: str
    title: str
    was: str
    now: str
    ended_otherwise: bool
    stopped: list[StoppedCall]

    @property
    def affected(self) -> bool:
        return bool(self.stopped) or self.ended_otherwise


@click.command()
@click.argument("task_id", type=TaskId(), required=False)
@click.option("--from-step", type=click.IntRange(min=1), help="Keep everything before this step.  [default: 1]")
@click.option("--input", "input", help="Another input; with --from-step, a message that is added before that step.")
@click.option("--prompt", help="Another system prompt, for this rerun only.")
@click.option("--model", help="Another model.")
@click.option("--agent-version", type=click.IntRange(min=1), help="Another version of the agent.")
@click.option(
    "--tool-result",
    "tool_results",
    multiple=True,
    type=ResultChange(),
    help="INDEX=TEXT: another result of a call in the step before, the first is 0. Repeatable.",
)
@permissions_option
@click.option("--max-steps", type=click.IntRange(min=1), help="Another limit of steps.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Another token budget.")
@click.option("--max-cost", "max_cost_usd", type=click.FloatRange(min=0, min_open=True), help="Another cost budget.")
@click.option("--max-tool-calls", type=click.IntRange(min=1), help="Another limit of tool calls.")
@click.option("--recorded", is_flag=True, help="Use recorded answers and results: no model is called, no tool runs.")
@click.option("--since", type=Duration(), help="With --recorded and without an id: all tasks of that time.")
@detach_option
@patience_option
@remote
def rerun(
    api: Api,
    task_id: str | None,
    recorded: bool,
    since: int | None,
    detach: bool,
    patience: int,
    as_json: bool,
    **changes: Any,
) -> None:
    """Run a task again from one of its steps, with something changed. The original stays as it is.

    With --recorded no model is called and no tool runs: answers and results are the original's, only rules and limits
    are new, and the command prints what they would have stopped in the task and in its subagents.

    \b
    Examples:
      ./errand rerun ID --from-step 3 --prompt "Answer in one sentence."
      ./errand rerun ID --from-step 2 --tool-result "0=No such file"
      ./errand rerun ID --recorded --permission "bash:rm *=deny"
      ./errand rerun --recorded --since 7d --permission "fetch_url=deny"
    """
    if (task_id is None) == (since is None) or (since is not None and not recorded):
        raise click.UsageError("give a task id, or --recorded and --since")
    body = _body(changes) | ({"recorded": True} if recorded else {})
    if recorded:
        if task_id is not None:
            requests = _with_subagents(api, task_id, body)
        else:
            requests = [RerunRequest(ended, body) for ended in _ended_tasks(api, since or 0)]
        _run_recorded(api, requests, since is not None, patience, as_json)
        return
    handle = api.post(f"/tasks/{segment(str(task_id))}/rerun", body)
    task_id, action = handle["task_id"], "Started again"
    watch_or_detach(api, task_id, handle, detach=detach, patience_ms=patience, as_json=as_json, action=action)


def _body(changes: JsonObject) -> JsonObject:
    limits = {name: changes.pop(name) for name in LIMITS}
    given = {name: value for name, value in changes.items() if value not in (None, ())}
    body = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
    if changed := {name: value for name, value in limits.items() if value is not None}:
        body["config"] = changed
    return body


def _with_subagents(api: Api, task_id: str, body: JsonObject) -> list[RerunRequest]:
    """The task and its subagents. Rules apply to all of them; limits, a version and a step only to the task."""
    rules = {"recorded": True, "permissions": body.get("permissions")}
    rules_only = rules["permissions"] and "from_step" not in body
    below = api.trace(task_id, FULL_TEXT).session_ids_below if rules_only else []
    return [RerunRequest(task_id, body), *(RerunRequest(child, rules) for child in below)]


def _ended_tasks(api: Api, since_ms: int) -> Iterator[str]:
    """The ended tasks of that time, without recorded reruns, which did nothing."""
    after = datetime.now(UTC) - timedelta(milliseconds=since_ms)
    for one in api.items("/tasks", created_after=after.isoformat(), limit=200, status=sorted(TERMINAL)):
        task = parse(Task, one)
        if not (task.rerun_of and task.rerun_of.recorded):
            yield task.task_id


def _run_recorded(api: Api, requests: list[RerunRequest], many: bool, patience: int, as_json: bool) -> None:
    """Rerun each task with its recorded answers, a few at a time, and report what was stopped."""
    reports: list[RerunReport] = []
    for start in range(0, len(requests), CONCURRENT_RERUNS):
        started = [
            (request.task_id, _start(api, request, optional=many or request is not requests[0]))
            for request in requests[start : start + CONCURRENT_RERUNS]
        ]
        for task_id, rerun_id in started:
            if rerun_id is None:
                continue
            report = _report(api, task_id, rerun_id, patience)
            reports.append(report)
            if not as_json:
                _show(report)
    affected = sum(report.affected for report in reports)
    if as_json:
        emit({"tried": len(reports), "affected": affected, "tasks": [asdict(report) for report in reports]})
    else:
        note(f"{len(reports)} tried, {affected} of them would have gone differently")


def _start(api: Api, request: RerunRequest, *, optional: bool) -> str | None:
    """Start a rerun and return its id; None if an optional one is refused."""
    try:
        started: str = api.post(f"/tasks/{segment(request.task_id)}/rerun", request.body)["task_id"]
    except Refused as refused:
        if not optional:
            raise
        note(f"{request.task_id} was left out: {refused.message}")
        return None
    return started


def _report(api: Api, task_id: str, rerun_id: str, patience_ms: int) -> RerunReport:
    deadline = time.monotonic() + patience_ms / 1_000
    while (rerun := api.task(rerun_id)).status not in TERMINAL:
        if time.monotonic() > deadline:
            raise NotFinished(f"the rerun {rerun_id} has not ended")
        time.sleep(PAUSE_SECONDS)
    original = api.trace(task_id, FULL_TEXT)
    return RerunReport(
        task_id=task_id,
        rerun=rerun_id,
        title=original.title,
        was=f"{original.status} ({original.reason})",
        now=f"{rerun.status} ({rerun.reason})",
        # the recording of an original that was stopped from outside ends before the task would
        ended_otherwise=rerun.reason != original.reason
        and not (rerun.error is not None and rerun.error.type == "RecordingEnded"),
        stopped=find_stopped_calls(original, api.trace(rerun_id, FULL_TEXT)),
    )


def _show(report: RerunReport) -> None:
    label = click.style("stopped ", fg="red") if report.affected else dim("the same")
    click.echo(f"{label}  {report.task_id}  {one_line(report.title, 80)}")
    for stop in report.stopped:
        click.echo(f"    step {stop.step}: {one_line(stop.tool)} {one_line(stop.arguments, 120)}")
        click.echo(dim(f"      {one_line(stop.why)}"))
    if report.ended_otherwise:
        click.echo(f"    it would have ended {style_status(report.now)}, and was {report.was}")
