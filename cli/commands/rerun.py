"""`errand rerun`: a task once more from one of its steps, or with recorded answers to see what a rule would stop."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from cli.client.api import Api, part
from cli.client.errors import NotFinished, Refused
from cli.commands.trace import WIDE, read_trace
from cli.options import Duration, patience_option, remote
from cli.options_rerun import Permission, ResultChange
from cli.render.compare import sessions_below, stopped
from cli.render.output import dim, emit, note, one_line, status_word
from cli.render.watch import detached, watch
from domain.sessions.session import TERMINAL

Wish = tuple[str, dict[str, Any]]  # a task, and what is asked of its rerun
AT_ONCE = 10
PAUSE_SECONDS = 0.2


@click.command()
@click.argument("task_id", required=False)
@click.option("--from-step", type=click.IntRange(min=1), help="Keep what came before this step.  [default: 1]")
@click.option("--input", "input", help="Another task; from a later step, words that the step hears too.")
@click.option("--prompt", help="Other instructions for the agent, for this rerun alone.")
@click.option("--model", help="Another model.")
@click.option("--agent-version", type=click.IntRange(min=1), help="Another version of the agent.")
@click.option(
    "--tool-result",
    "tool_results",
    multiple=True,
    type=ResultChange(),
    help="INDEX=TEXT: another result of a call of the step before, the first is 0. Repeatable.",
)
@click.option(
    "--permission", "permissions", multiple=True, type=Permission(), help="TOOL[:PATTERN]=allow|deny|ask. Repeatable."
)
@click.option("--max-steps", type=click.IntRange(min=1), help="Another limit of steps.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Another token budget.")
@click.option("--max-cost", "max_cost_usd", type=click.FloatRange(min=0, min_open=True), help="Another cost budget.")
@click.option("--max-tool-calls", type=click.IntRange(min=1), help="Another limit of tool calls.")
@click.option("--recorded", is_flag=True, help="With recorded answers and results: nothing is asked, nothing is done.")
@click.option("--since", type=Duration(), help="With --recorded and without an id: every task of that time.")
@click.option("--wait/--no-wait", " /--detach", default=True, help="Watch the rerun until it ends.  [default: wait]")
@patience_option
@remote
def rerun(
    api: Api,
    task_id: str | None,
    recorded: bool,
    since: int | None,
    wait: bool,
    patience: int,
    as_json: bool,
    **changes: Any,
) -> None:
    """Run a task again from one of its steps, with something changed. The original stays as it is.

    With --recorded the model is not asked and no tool runs: the answers and results are the original's, only rules and
    limits are new, and you are told what they would have stopped, in the task and in its subagents.

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
        wishes = _tree(api, task_id, body) if task_id is not None else [(one, body) for one in _ended(api, since or 0)]
        _try(api, wishes, since is not None, patience, as_json)
        return
    handle = api.post(f"/tasks/{part(str(task_id))}/rerun", body)
    if wait:
        watch(api, handle["task_id"], after=0, patience_ms=patience, as_json=as_json)
    elif as_json:
        emit(handle)
    else:
        click.echo(handle["task_id"])
        detached(handle["task_id"], 0, "Begun again")


def _body(changes: dict[str, Any]) -> dict[str, Any]:
    limits = {name: changes.pop(name) for name in ("max_steps", "max_tokens", "max_cost_usd", "max_tool_calls")}
    given = {name: value for name, value in changes.items() if value not in (None, ())}
    body = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
    if changed := {name: value for name, value in limits.items() if value is not None}:
        body["config"] = changed
    return body


def _tree(api: Api, task_id: str, body: dict[str, Any]) -> list[Wish]:
    """A task and its subagents: rules concern them all; limits, a version and a step are the task's own."""
    rules = {"recorded": True, "permissions": body.get("permissions")}
    concerned = rules["permissions"] and "from_step" not in body
    below = sessions_below(read_trace(api, task_id, WIDE)) if concerned else []
    return [(task_id, body), *((child, rules) for child in below)]


def _ended(api: Api, since_ms: int) -> Iterator[str]:
    """The tasks of that time that have ended; a rerun that did nothing, with recorded answers, is none of them."""
    after = datetime.now(UTC) - timedelta(milliseconds=since_ms)
    cursor = None
    while True:
        page = api.get("/tasks", created_after=after.isoformat(), limit=200, cursor=cursor, status=sorted(TERMINAL))
        yield from (task["task_id"] for task in page["items"] if not (task["rerun_of"] or {}).get("recorded"))
        if (cursor := page["next_cursor"]) is None:
            return


def _try(api: Api, wishes: list[Wish], many: bool, patience: int, as_json: bool) -> None:
    """Replay each task with its recorded answers, a few at a time, and tell what was stopped."""
    reports: list[dict[str, Any]] = []
    for place in range(0, len(wishes), AT_ONCE):
        begun = [
            (task_id, _begin(api, task_id, body, many or (task_id, body) != wishes[0]))
            for task_id, body in wishes[place : place + AT_ONCE]
        ]
        for task_id, again in begun:
            if again is None:
                continue
            report = _report(api, task_id, again, patience)
            reports.append(report)
            if not as_json:
                _show(report)
    hit = [report for report in reports if report["stopped"] or report["ended_otherwise"]]
    if as_json:
        emit({"tried": len(reports), "affected": len(hit), "tasks": reports})
    else:
        note(f"{len(reports)} tried, {len(hit)} of them would have gone otherwise")


def _begin(api: Api, task_id: str, body: dict[str, Any], many: bool) -> str | None:
    """None: one of many that cannot be run again, which is said."""
    try:
        begun: str = api.post(f"/tasks/{part(task_id)}/rerun", body)["task_id"]
    except Refused as refused:
        if not many:
            raise
        note(f"{task_id} was left out: {refused.message}")
        return None
    return begun


def _report(api: Api, task_id: str, again: str, patience_ms: int) -> dict[str, Any]:
    give_up = time.monotonic() + patience_ms / 1_000
    while (record := api.task(again))["status"] not in TERMINAL:
        if time.monotonic() > give_up:
            raise NotFinished(f"the rerun {again} has not ended")
        time.sleep(PAUSE_SECONDS)
    original = read_trace(api, task_id, WIDE)
    stops = stopped(original, read_trace(api, again, WIDE))
    return {
        "task_id": task_id,
        "rerun": again,
        "title": original.title,
        "was": f"{original.status} ({original.reason})",
        "now": f"{record['status']} ({record['reason']})",
        "ended_otherwise": record["reason"] != original.reason and not _ran_out(record),
        "stopped": [asdict(stop) for stop in stops],
    }


def _ran_out(record: dict[str, Any]) -> bool:
    """The original was cut short from outside, so its recording simply ends."""
    return bool(record["error"] and record["error"]["type"] == "RecordingEnded")


def _show(report: dict[str, Any]) -> None:
    hit = report["stopped"] or report["ended_otherwise"]
    word = click.style("stopped ", fg="red") if hit else dim("the same")
    click.echo(f"{word}  {report['task_id']}  {one_line(report['title'], 80)}")
    for stop in report["stopped"]:
        click.echo(f"    step {stop['step']}: {one_line(stop['tool'])} {one_line(stop['arguments'], 120)}")
        click.echo(dim(f"      {one_line(stop['why'])}"))
    if report["ended_otherwise"]:
        click.echo(f"    it would have ended {status_word(report['now'])}, and was {report['was']}")
