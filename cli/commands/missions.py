"""`errand missions`: agents that run again and again, within budgets, without a single result."""

from pathlib import Path
from typing import Any

import click
from errand.models import Mission, MissionPage

from cli.api import Api, segment
from cli.options import files_option, folders_option, remote, settings, timing_options
from cli.render.answers import find_named, print_answer, print_list, print_runs
from cli.render.output import emit, facts
from cli.trees import pack_folder, upload_files, upload_folder
from domain.amounts import format_count


@click.group()
def missions() -> None:
    """Let an agent watch over something, within budgets, until it is cancelled, expired or out of budget.

    \b
    Examples:
      ./errand missions add tests assistant "Repair the tests" --every 15m --check "./run-tests" --total-usd 20
      ./errand missions show tests
      ./errand missions cancel tests
    """


@missions.command()
@click.argument("name")
@click.argument("agent")
@click.argument("text", metavar="INPUT")
@timing_options
@click.option("--day-usd", type=float, help="What it may spend in a day.")
@click.option("--day-runs", type=click.IntRange(min=1), help="How often it may run in a day.")
@click.option("--total-usd", type=float, help="What it may spend in all.")
@click.option("--total-runs", type=click.IntRange(min=1), help="How often it may run in all.")
@click.option("--expires-at", help="When it ends, such as 2027-01-01T09:00:00+01:00.")
@click.option("--stop-when", "stop_when_answer", help="A regular expression: a run whose answer has it is the last.")
@click.option("--risk", "risks", multiple=True, metavar="TOOL[=ARGUMENT]", help="Ask before such a call. Repeatable.")
@files_option
@folders_option
@click.option("--notify", multiple=True, help="Notify this subscription or channel about its runs. Repeatable.")
@remote
def add(
    api: Api,
    name: str,
    agent: str,
    text: str,
    check: str | None,
    risks: tuple[str, ...],
    files: tuple[Path, ...],
    folders: tuple[Path, ...],
    notify: tuple[str, ...],
    day_usd: float | None,
    day_runs: int | None,
    total_usd: float | None,
    total_runs: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Add a mission: AGENT does INPUT whenever it is due and the check finds something."""
    task: dict[str, Any] = {"agent": agent, "input": text}
    # first, so that a folder that is too large is refused before any upload
    archives = [pack_folder(folder, settings()) for folder in folders]
    if files or folders:
        packed = [upload_folder(api, one) for one in archives]
        task["context"] = {"files": upload_files(api, files), "archives": packed}
    if notify:
        task["config"] = {"notify": list(notify)}
    body = {"name": name, "task": task} | {key: value for key, value in options.items() if value is not None}
    if check is not None:
        body["check"] = {"run": check}
    body["per_day"] = _budget(day_usd, day_runs)
    body |= {"total": _budget(total_usd, total_runs), "risks": []}
    for tool, found, argument in (one.partition("=") for one in risks):
        body["risks"].append({"tool": tool} | ({"argument": argument} if found else {}))
    _show(api.ask("POST", "/missions", json=body), as_json)


@missions.command("list")
@remote
def list_missions(api: Api, as_json: bool) -> None:
    """List the missions."""
    columns = ["NAME", "STATE", "USED", "ID"]
    print_list(api.get("/missions"), as_json, MissionPage, columns, _row, empty="no missions")


@missions.command()
@click.argument("name")
@remote
def show(api: Api, name: str, as_json: bool) -> None:
    """Show a mission, what it has used, and what it waits for."""
    _show(api.get(_path(api, name)), as_json)


@missions.command()
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True)
@remote
def runs(api: Api, name: str, limit: int, as_json: bool) -> None:
    """List the runs of a mission, the latest first."""
    print_runs(api.get(_path(api, name, "/runs"), limit=limit), as_json)


@missions.command()
@click.argument("name")
@remote
def run(api: Api, name: str, as_json: bool) -> None:
    """Run a mission now, within its budgets."""
    answer = api.ask("POST", _path(api, name, "/run"))
    emit(answer) if as_json else click.echo(answer["scheduled_at"])


@missions.command()
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
    """Replace the files of a mission by a folder as it is now."""
    body = {"archives": [upload_folder(api, pack_folder(folder, settings()))]}
    _show(api.ask("PUT", _path(api, name, "/files"), json=body), as_json)


@missions.command()
@click.argument("name")
@click.option("--reason", default="", help="Shown with the mission.")
@remote
def pause(api: Api, name: str, reason: str, as_json: bool) -> None:
    """Pause a mission."""
    _show(api.ask("POST", _path(api, name, "/pause"), json={"reason": reason}), as_json)


@missions.command()
@click.argument("name")
@remote
def resume(api: Api, name: str, as_json: bool) -> None:
    """Resume a mission."""
    _show(api.ask("POST", _path(api, name, "/resume")), as_json)


@missions.command()
@click.argument("name")
@remote
def cancel(api: Api, name: str, as_json: bool) -> None:
    """Cancel a mission and stop its runs; the answer has its summary."""
    _show(api.ask("POST", _path(api, name, "/cancel")), as_json)


def _path(api: Api, name: str, rest: str = "") -> str:
    return f"/missions/{segment(find_named(api, '/missions', name, MissionPage, Mission).id)}{rest}"


def _row(item: Mission) -> list[str]:
    return [item.name, _state(item), _show_used(item), item.id]


def _budget(usd: float | None, runs: int | None) -> dict[str, Any]:
    return {key: value for key, value in (("cost_usd", usd), ("runs", runs)) if value is not None}


def _state(item: Mission) -> str:
    if item.paused:
        return f"{item.status}, paused: {item.pause_reason}"
    return f"{item.status}: {item.reason}" if item.reason else item.status


def _show_used(item: Mission) -> str:
    return f"{format_count(item.total.runs, 'run')}, {item.total.tokens} tokens, {item.total.cost_usd:.4f} USD"


def _show(answer: Any, as_json: bool) -> None:
    print_answer(answer, as_json, Mission, _show_facts)


def _show_facts(item: Mission) -> None:
    facts(
        [
            ("mission", f"{item.name} ({item.id})"),
            ("state", _state(item)),
            ("waits for", ", ".join(item.requests) or None),
            ("used", _show_used(item)),
            ("summary", item.summary),
            ("conversation", item.conversation_id),
        ]
    )
