"""Prints an input request with everything that a person needs for the decision."""

import json

import click
from errand.models import AgentRule, InputRequest, JsonObject, Model

from cli.api import parse
from cli.render.output import PROGRAM, age, clean, dim, dollars, facts, moment, one_line
from domain.amounts import counted
from domain.sessions.input_request import APPROVALS, ApprovedFile, MoreFiles, RequestKind

_SHOWN_BY_DIFF = ("content", "old", "new")  # arguments of a call that writes a file
_COLOURS = {"-": "red", "+": "green"}
_ANSWER_FORMS: dict[str, str] = {
    RequestKind.EXTERNAL_RESULT: '{"result": …}',
    RequestKind.MISSING_VARIABLES: '{"NAME": "…"}',
}


class RequestSpent(Model):
    steps: int = 0
    tokens: int = 0
    cost_usd: float | None = None


class RequestDetails(Model):
    """Details for the decision; each kind of request has some of them."""

    plan: list[str] = []
    tool: str = ""
    always: list[str] = []  # patterns of calls like this one
    arguments: JsonObject = {}
    diff: str | None = None
    files: list[ApprovedFile] = []  # files that a command names, with their present content
    more_files: MoreFiles | None = None
    note: str | None = None
    rule: AgentRule | None = None  # that requires the approval
    variables: dict[str, str] = {}
    options: list[str] = []
    so_far: RequestSpent = RequestSpent()


def details_of(request: InputRequest) -> RequestDetails:
    return parse(RequestDetails, request.details)


def answer_command(task_id: str, request_id: str, kind: str) -> str:
    """The command that answers a request of this kind."""
    if kind in APPROVALS:
        return f'{PROGRAM} approve {task_id} {request_id}   (or with --deny --notes "…")'
    if kind in _ANSWER_FORMS:
        return f"{PROGRAM} answer {task_id} {request_id} --json-value '{_ANSWER_FORMS[kind]}'"
    return f'{PROGRAM} answer {task_id} {request_id} "…"'


def show_request(request: InputRequest, *, hint: bool = True) -> None:
    details = details_of(request)
    click.echo(click.style(clean(request.question), bold=True))
    for number, step in enumerate(details.plan, start=1):
        click.echo(f"  {number}. {one_line(step)}")
    _show_call(details)
    for name, description in details.variables.items():
        click.echo(f"  {name}: {one_line(description)}")
    for number, option in enumerate(details.options, start=1):
        click.echo(f"  {number}) {one_line(option)}")
    spent = details.so_far
    facts(
        [
            ("task", request.session_id),
            ("request", request.id),
            ("so far", f"{counted(spent.steps, 'step')}, {spent.tokens:,} tokens, {dollars(spent.cost_usd)}"),
            ("answer", _expected_answer(request)),
            ("asked", age(request.created_at)),
            ("until", f"{moment(request.deadline)} (then: {request.on_expiry})"),
        ]
    )
    if hint:
        click.echo(dim(f"  {answer_command(request.session_id, request.id, request.kind)}"))


def _show_call(details: RequestDetails) -> None:
    for name, value in details.arguments.items():
        if details.diff is None or name not in _SHOWN_BY_DIFF:
            text = clean(value) if isinstance(value, str) else json.dumps(value)
            click.echo(f"  {name}: " + text.replace("\n", "\n    "))
    for line in clean(details.diff).split("\n") if details.diff else []:
        click.echo("  " + click.style(line, fg=_COLOURS.get(line[:1])))
    for file in details.files:
        click.echo(dim(f"  {one_line(file.path)}, {file.size:,} bytes, sha256 {file.sha256}:"))
        for line in clean(file.text).split("\n") if file.text is not None else ["(too long, or not text)"]:
            click.echo(f"  | {line}")
    if details.more_files:
        click.echo(f"  and {counted(details.more_files.count, 'more file')} that it names")
    if details.note:
        click.echo(f"  {one_line(details.note)}")
    if rule := details.rule:
        click.echo(f'  asked because of the rule: {rule.action} {rule.permission} "{one_line(rule.pattern)}"')


def _expected_answer(request: InputRequest) -> str | None:
    """The schema of the answer, if a question needs more than text."""
    schema = request.answer_schema
    return one_line(json.dumps(schema), 300) if schema and request.kind == RequestKind.CLARIFICATION else None
