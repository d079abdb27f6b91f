"""Requests for input as people read and answer them."""

import json
from typing import Any

import click

from cli.client.api import Api, part
from cli.render.output import PROGRAM, age, clean, dim, emit, facts, note, one_line

Request = dict[str, Any]
CLARIFICATION = "clarification"
APPROVALS = ("tool_approval", "plan_approval")
_IN_THE_DIFF = ("content", "old", "new")
_COLOURS = {"-": "red", "+": "green"}
_FORMS = {"external_result": '{"result": …}', "missing_variables": '{"NAME": "…"}'}


def send(api: Api, task_id: str, request_id: str, value: Any, *, as_json: bool = False) -> None:
    body = {"response_to": request_id, "input": value}
    said = api.send("POST", f"/tasks/{part(task_id)}/input", json=body).json()
    if as_json:
        emit(said)
    else:
        note(f"Noted; `{PROGRAM} attach {task_id}` shows how it goes on.")


def open_requests(api: Api, task_id: str) -> list[Request]:
    """Oldest first."""
    items: list[Request] = api.get(f"/tasks/{part(task_id)}/input-requests")["items"]
    return [request for request in reversed(items) if request["status"] == "open"]


def how_to_answer(task_id: str, request_id: str, kind: str) -> str:
    if kind in APPROVALS:
        return f'{PROGRAM} approve {task_id} {request_id}   (or with --deny --notes "…")'
    if kind in _FORMS:
        return f"{PROGRAM} answer {task_id} {request_id} --json-value '{_FORMS[kind]}'"
    return f'{PROGRAM} answer {task_id} {request_id} "…"'


def show(request: Request, *, hint: bool = True) -> None:
    """All that a person needs to decide: the call or the plan in full, and what it has cost so far."""
    details = request["details"]
    click.echo(click.style(clean(request["question"]), bold=True))
    for number, step in enumerate(details.get("plan", []), start=1):
        click.echo(f"  {number}. {one_line(step)}")
    _show_call(details)
    for name, about in details.get("variables", {}).items():
        click.echo(f"  {name}: {one_line(about)}")
    for number, option in enumerate(details.get("options", []), start=1):
        click.echo(f"  {number}) {one_line(option)}")
    spent = details.get("so_far", {})
    cost = spent.get("cost_usd")
    facts(
        [
            ("task", request["session_id"]),
            ("request", request["id"]),
            ("so far", f"{spent.get('steps', 0)} steps, {spent.get('tokens', 0):,} tokens, " + _cost(cost)),
            ("answer", _wanted(request)),
            ("asked", age(request["created_at"])),
            ("until", f"{request['deadline']} (then: {request['on_expiry']})"),
        ]
    )
    if hint:
        click.echo(dim(f"  {how_to_answer(request['session_id'], request['id'], request['kind'])}"))


def _show_call(details: dict[str, Any]) -> None:
    """What a call was given; of one that writes a file, the diff says it all."""
    diff = details.get("diff")
    for name, value in details.get("arguments", {}).items():
        if diff is None or name not in _IN_THE_DIFF:
            text = clean(value) if isinstance(value, str) else json.dumps(value)
            click.echo(f"  {name}: " + text.replace("\n", "\n    "))
    for line in clean(diff or "").split("\n") if diff else []:
        click.echo("  " + click.style(line, fg=_COLOURS.get(line[:1])))
    if note := details.get("note"):
        click.echo(f"  {one_line(note)}")
    if rule := details.get("rule"):
        click.echo(f'  asked because of the rule: {rule["action"]} {rule["permission"]} "{one_line(rule["pattern"])}"')


def _wanted(request: Request) -> str | None:
    """What a question wants to be told, if that is more than words."""
    schema = request["answer_schema"]
    return one_line(json.dumps(schema), 300) if schema and request["kind"] == CLARIFICATION else None


def _cost(cost: float | None) -> str:
    return "cost unknown" if cost is None else f"${cost:.4f}"


def read_value(request: Request, text: str) -> Any:
    """What a person typed: an option by its number, JSON where the schema wants more than words, else the words."""
    options = request["details"].get("options", [])
    if text.isdigit() and 0 < int(text) <= len(options):
        return options[int(text) - 1]
    schema = request["answer_schema"] or {}
    if schema and schema.get("type") != "string":
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
