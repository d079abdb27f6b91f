"""`errand schedules`: agents that are sent a message by the clock."""

from datetime import datetime
from pathlib import Path
from typing import Any

import click
from errand.models import Schedule, SchedulePage

from cli.api import Api, segment
from cli.ids import AgentNameType
from cli.options import Duration, files_option, remote, timing_options
from cli.render.answers import find_named, print_answer, print_list, print_runs
from cli.render.output import emit, facts, one_line
from cli.trees import upload_files
from domain.json_object import JsonObject
from domain.schedules import ContextMode, MissedTicks, Overlap


@click.group()
def schedules() -> None:
    """Run agents by the clock. Each tick sends one message; `runs` lists them.

    \b
    Examples:
      ./errand schedules add report assistant "Write the report" --cron "30 7 * * MON-FRI" --zone Europe/Berlin
      ./errand schedules add watch assistant "Something is wrong" --every 15m --check "./look.sh" --quiet 22:00-07:00
      ./errand schedules trigger report
    """


@schedules.command()
@click.argument("name")
@click.argument("agent", type=AgentNameType())
@click.argument("text", metavar="INPUT")
@timing_options
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
@files_option
@remote
def add(
    api: Api,
    name: str,
    agent: str,
    text: str,
    check: str | None,
    quiet: str | None,
    files: tuple[Path, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Add a schedule: NAME sends INPUT to AGENT. Give one of --cron, --every and --at."""
    task: JsonObject = {"agent": agent, "input": text}
    if files:
        task["context"] = {"files": upload_files(api, files)}
    body = {"name": name, "task": task} | {key: value for key, value in options.items() if value is not None}
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
    print_list(api.get("/schedules"), as_json, SchedulePage, columns, _row, empty="no schedules")


@schedules.command()
@click.argument("name")
@remote
def show(api: Api, name: str, as_json: bool) -> None:
    """Show a schedule and its next five times."""
    _show(api.get(_path(api, name)), as_json)


@schedules.command()
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True)
@remote
def runs(api: Api, name: str, limit: int, as_json: bool) -> None:
    """List the ticks of a schedule, the latest first."""
    print_runs(api.get(_path(api, name, "/runs"), limit=limit), as_json)


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
@remote
def trigger(api: Api, name: str, as_json: bool) -> None:
    """Run a schedule now, even if it is paused."""
    answer = api.ask("POST", _path(api, name, "/trigger"))
    emit(answer) if as_json else click.echo(answer["scheduled_at"])


@schedules.command()
@click.argument("name")
@click.argument("start", type=click.DateTime(["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M%z"]))
@click.argument("end", type=click.DateTime(["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M%z"]))
@remote
def backfill(api: Api, name: str, start: datetime, end: datetime, as_json: bool) -> None:
    """Run the ticks of a past range, such as 2026-01-05T00:00+00:00; a time that has a run is left alone."""
    span = {"start": start.isoformat(), "end": end.isoformat()}
    _show(api.ask("POST", _path(api, name, "/backfill"), json=span), as_json)


@schedules.command()
@click.argument("name")
@remote
def remove(api: Api, name: str, as_json: bool) -> None:
    """Delete a schedule. Its conversation and the list of its runs stay."""
    api.request("DELETE", _path(api, name))
    emit({"name": name, "removed": True}) if as_json else click.echo(f"removed {name}")


def _path(api: Api, name: str, rest: str = "") -> str:
    return f"/schedules/{segment(find_named(api, '/schedules', name, SchedulePage, Schedule).id)}{rest}"


def _row(item: Schedule) -> list[str]:
    return [item.name, _when(item), item.agent, _state(item), _counts(item), one_line(item.prompt)]


def _when(item: Schedule) -> str:
    if item.every is not None:
        return f"every {item.every / 1_000:g} s"
    return f"{item.cron} {item.timezone}" if item.cron else f"once at {item.at.isoformat() if item.at else ''}"


def _state(item: Schedule) -> str:
    return f"paused: {item.pause_reason}" if item.paused else "active"


def _counts(item: Schedule) -> str:
    """Such as `12, skipped: 11 of 12`."""
    total = sum(item.runs.values())
    others = [f"{name}: {count} of {total}" for name, count in sorted(item.runs.items()) if name != "fired"]
    return ", ".join([str(total), *others])


def _show(answer: Any, as_json: bool) -> None:
    print_answer(answer, as_json, Schedule, _show_facts)


def _show_facts(item: Schedule) -> None:
    times = ", ".join(one.isoformat() for one in item.next_times) if item.next_times else None
    facts(
        [
            ("schedule", f"{item.name} ({item.id})"),
            ("when", _when(item)),
            ("state", _state(item)),
            ("runs", _counts(item)),
            ("next", times),
            ("conversation", item.conversation_id),
        ]
    )
