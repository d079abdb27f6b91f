"""`errand schedules`: agents that are sent a message by the clock, and missions, which have budgets and an end."""

from datetime import datetime
from pathlib import Path
from typing import Any

import click
from errand.models import Mission, RunPage, Schedule, SchedulePage, ScheduleRun, Triggered

from cli.api import Api, segment
from cli.ids import AgentNameType
from cli.options import Duration, ListGroup, add_remove, add_show, files_option, folders_option, remote, settings
from cli.render.answers import find_named, print_answer, print_list
from cli.render.output import facts, moment, one_line
from cli.trees import pack_folder, upload_files, upload_folder
from domain.amounts import format_count
from domain.json_object import JsonObject
from domain.schedules import ContextMode, MissedTicks, Overlap


@click.group(cls=ListGroup)
def schedules() -> None:
    """Run agents by the clock. Each tick sends one message; `runs` lists them.

    \b
    Examples:
      ./errand schedules add report assistant "Write the report" --cron "30 7 * * MON-FRI" --zone Europe/Berlin
      ./errand schedules add watch assistant "Something is wrong" --every 15m --check "./look.sh" --quiet 22:00-07:00
      ./errand schedules add tests assistant "Repair the tests" --every 15m --check "./run-tests" --total-usd 20
      ./errand schedules trigger report
    """


@schedules.command()
@click.argument("name")
@click.argument("agent", type=AgentNameType())
@click.argument("text", metavar="INPUT")
@click.option("--cron", help="Five fields: minute, hour, day of month, month, day of week.")
@click.option("--zone", "timezone", help="IANA time zone of --cron, of quiet hours and of days.  [default: UTC]")
@click.option("--every", type=Duration(), help="An interval: 30s, 10m, 2h, 1d.")
@click.option("--check", help="A command in the workspace; no output or exit code 3 skips the run.")
@click.option("--at", help="Once, at this time, such as 2027-01-01T09:00:00+01:00.")
@click.option("--jitter", type=Duration(), help="Be late by a random part of this.")
@click.option("--catch-up", "catch_up", type=Duration(), help="Drop ticks missed for longer than this.  [default: 10m]")
@click.option("--missed", type=click.Choice([one.value for one in MissedTicks]), help="Ticks that an outage made late.")
@click.option("--overlap", type=click.Choice([one.value for one in Overlap]), help="While a run is not over.")
@click.option("--context", type=click.Choice([one.value for one in ContextMode]), help="What a run knows.")
@click.option("--quiet", metavar="HH:MM-HH:MM", help="Hours in which nothing runs.")
@click.option("--silent-reply", help="A run that answers exactly this notifies nobody.")
@click.option("--pause-after", "pause_after_failures", type=click.IntRange(min=1), help="Failures in a row.")
@click.option("--conversation", "conversation_id", help="Send the messages to this conversation.")
@click.option("--day-usd", type=float, help="A mission: what it may spend in a day.")
@click.option("--day-runs", type=click.IntRange(min=1), help="A mission: how often it may run in a day.")
@click.option("--total-usd", type=float, help="A mission: what it may spend in all.")
@click.option("--total-runs", type=click.IntRange(min=1), help="A mission: how often it may run in all.")
@click.option("--expires-at", help="A mission: when it ends, such as 2027-01-01T09:00:00+01:00.")
@click.option("--stop-when", help="A mission: a regular expression; a run whose answer has it is the last.")
@click.option("--risk", "risks", multiple=True, metavar="TOOL[=ARGUMENT]", help="A mission: ask before such a call.")
@click.option("--notify", multiple=True, help="Notify this subscription or channel about its runs. Repeatable.")
@files_option
@folders_option
@remote
def add(
    api: Api,
    name: str,
    agent: str,
    text: str,
    check: str | None,
    quiet: str | None,
    day_usd: float | None,
    day_runs: int | None,
    total_usd: float | None,
    total_runs: int | None,
    expires_at: str | None,
    stop_when: str | None,
    risks: tuple[str, ...],
    notify: tuple[str, ...],
    files: tuple[Path, ...],
    folders: tuple[Path, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Add a schedule: NAME sends INPUT to AGENT. Give one of --cron, --every and --at. With a budget or an end it is a
    mission: it runs within its budgets until it is cancelled, expired or out of budget."""
    if [options[one] for one in ("cron", "every", "at")].count(None) != 2:
        raise click.UsageError("give exactly one of --cron, --every and --at")
    task: JsonObject = {"agent": agent, "input": text}
    # first, so that a folder that is too large is refused before any upload
    archives = [pack_folder(folder, settings()) for folder in folders]
    if files or folders:
        packed = [upload_folder(api, one) for one in archives]
        task["context"] = {"files": upload_files(api, files), "archives": packed}
    if notify:
        task["config"] = {"notify": list(notify)}
    mission = _drop_missing(
        per_day=_drop_missing(cost_usd=day_usd, runs=day_runs),
        total=_drop_missing(cost_usd=total_usd, runs=total_runs),
        expires_at=expires_at,
        stop_when_answer=stop_when,
        risks=[_risk(one) for one in risks],
    )
    body = {"name": name, "task": task} | _drop_missing(**options, mission=mission)
    if check is not None:
        body["check"] = {"run": check}
    if quiet is not None:
        start, _, end = quiet.partition("-")
        body["quiet_hours"] = {"start": start, "end": end}
    _show(api.ask("POST", "/schedules", json=body), as_json)


@schedules.command("list")
@remote
def list_schedules(api: Api, as_json: bool) -> None:
    """List the schedules."""
    columns = ["NAME", "WHEN", "AGENT", "STATE", "RUNS", "INPUT"]
    every = {"items": [*api.items("/schedules")], "next_cursor": None}
    print_list(every, as_json, SchedulePage, columns, _row, empty="no schedules")


@schedules.command()
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True)
@remote
def runs(api: Api, name: str, limit: int, as_json: bool) -> None:
    """List the ticks of a schedule, the latest first."""
    answer = api.get(_path(api, name, "/runs"), limit=limit)
    print_list(answer, as_json, RunPage, ["SCHEDULED", "RUN", "TASK", "ID", "REASON"], _run_row)


@schedules.command()
@click.argument("name")
@click.option("--reason", default="", help="Shown with the schedule.")
@remote
def pause(api: Api, name: str, reason: str, as_json: bool) -> None:
    """Pause a schedule."""
    _show(api.ask("POST", _path(api, name, "/pause"), json={"reason": reason}), as_json)


@schedules.command()
@click.argument("name")
@remote
def resume(api: Api, name: str, as_json: bool) -> None:
    """Resume a schedule; ticks that were due while it was paused are not made up for."""
    _show(api.ask("POST", _path(api, name, "/resume")), as_json)


@schedules.command()
@click.argument("name")
@click.option(
    "--dir",
    "folder",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="What its workspace is to hold.",
)
@remote
def push(api: Api, name: str, folder: Path, as_json: bool) -> None:
    """Replace the files of a schedule by a folder as it is now."""
    body = {"archives": [upload_folder(api, pack_folder(folder, settings()))]}
    _show(api.ask("PUT", _path(api, name, "/files"), json=body), as_json)


@schedules.command()
@click.argument("name")
@remote
def trigger(api: Api, name: str, as_json: bool) -> None:
    """Run a schedule now, even if it is paused."""
    answer = api.ask("POST", _path(api, name, "/trigger"))
    print_answer(answer, as_json, Triggered, lambda one: click.echo(moment(one.scheduled_at)))


@schedules.command()
@click.argument("name")
@click.argument("start", type=click.DateTime(["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M%z"]))
@click.argument("end", type=click.DateTime(["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M%z"]))
@remote
def backfill(api: Api, name: str, start: datetime, end: datetime, as_json: bool) -> None:
    """Run the ticks of a past range, such as 2026-01-05T00:00+00:00; a time that has a run is left alone."""
    span = {"start": start.isoformat(), "end": end.isoformat()}
    _show(api.ask("POST", _path(api, name, "/backfill"), json=span), as_json)


def _path(api: Api, name: str, rest: str = "") -> str:
    return f"/schedules/{segment(find_named(api, '/schedules', name, SchedulePage, Schedule).id)}{rest}"


_REMOVE = (
    "Delete a schedule; its conversation stays. A mission is cancelled, its runs are stopped, and it stays listed."
)
add_remove(schedules, _path, _REMOVE)


def _row(item: Schedule) -> list[str]:
    return [item.name, _when(item), item.agent, _state(item), _counts(item), one_line(item.prompt)]


def _run_row(run: ScheduleRun) -> list[str]:
    return [moment(run.scheduled_at), run.status, run.task_status or "", run.session_id or "", one_line(run.reason)]


def _when(item: Schedule) -> str:
    if item.every is not None:
        return f"every {item.every / 1_000:g} s"
    return f"{item.cron} {item.timezone}" if item.cron else f"once at {moment(item.at) if item.at else ''}"


def _state(item: Schedule) -> str:
    if item.paused:
        return f"paused: {item.pause_reason}"
    if item.mission is None:
        return "active"
    return f"{item.mission.status}: {item.mission.reason}" if item.mission.reason else item.mission.status


def _used(item: Mission | None) -> str | None:
    if item is None:
        return None
    return f"{format_count(item.total.runs, 'run')}, {item.total.tokens} tokens, {item.total.cost_usd:.4f} USD"


def _drop_missing(**fields: Any) -> JsonObject:
    """Those fields that were given."""
    return {name: value for name, value in fields.items() if value not in (None, {}, [])}


def _risk(text: str) -> JsonObject:
    tool, _, argument = text.partition("=")
    return {"tool": tool} | _drop_missing(argument=argument or None)


def _counts(item: Schedule) -> str:
    """Such as `12, skipped: 11 of 12`."""
    total = sum(item.runs.values())
    others = [f"{name}: {count} of {total}" for name, count in sorted(item.runs.items()) if name != "fired"]
    return ", ".join([str(total), *others])


def _show(answer: Any, as_json: bool) -> None:
    print_answer(answer, as_json, Schedule, _show_facts)


def _show_facts(item: Schedule) -> None:
    times = ", ".join(map(moment, item.next_times)) if item.next_times else None
    facts(
        [
            ("schedule", f"{item.name} ({item.id})"),
            ("when", _when(item)),
            ("state", _state(item)),
            ("runs", _counts(item)),
            ("next", times),
            ("used", _used(item.mission)),
            ("waits for", ", ".join(item.mission.requests) or None if item.mission else None),
            ("summary", item.mission.summary if item.mission else None),
            ("conversation", item.conversation_id),
        ]
    )


add_show(schedules, _path, Schedule, _show_facts, "Show a schedule and its next five times.")
