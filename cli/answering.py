"""Input requests at the terminal: shown with all that a decision needs, and answered by typing, with one dialogue for
each kind."""

import json
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import click
from errand.models import AgentRule, InputRequest, InputRequestPage, JsonObject, Model

from cli.api import Api, parse, segment
from cli.errors import Ambiguous, NotFoundError, Refused
from cli.render.output import PROGRAM, age, clean, dim, dollars, facts, json_wanted, moment, note, one_line
from domain.amounts import format_count
from domain.json_object import read_json
from domain.sessions.input_request import APPROVALS, ApprovedFile, MoreFiles, RequestKind

# a request with everything that a person needs for the decision


_SHOWN_BY_DIFF = ("content", "edits")  # arguments of a call that writes a file
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
    hosts: list[str] = []
    network: bool = True  # of its command
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
    spent, schema = details.so_far, request.answer_schema
    needs_more_than_text = request.kind == RequestKind.CLARIFICATION
    rules = " and ".join(f"{details.tool} {one_line(pattern)}" for pattern in details.always)
    facts(
        [
            ("always", f"allows {rules} without asking, in this conversation only" if rules else None),
            ("reaches", one_line(", ".join(details.hosts)) or (None if details.network else "no network")),
            ("task", request.session_id),
            ("request", request.id),
            ("so far", f"{format_count(spent.steps, 'step')}, {spent.tokens:,} tokens, {dollars(spent.cost_usd)}"),
            ("answer", one_line(json.dumps(schema), 300) if schema and needs_more_than_text else None),
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
        click.echo(f"  and {format_count(details.more_files.count, 'more file')} that it names")
    if details.note:
        click.echo(f"  {one_line(details.note)}")
    if rule := details.rule:
        click.echo(f'  asked because of the rule: {rule.action} {rule.permission} "{one_line(rule.pattern)}"')


# answering by typing: one dialogue for each kind


@dataclass(frozen=True)
class Prompt:
    """A line to ask a person for; `default` can be edited."""

    text: str
    default: str = ""
    secret: bool = False  # not shown while it is typed, and not stored in a history

    @property
    def multiline(self) -> bool:
        return "\n" in self.default


Dialogue = Generator[Prompt, str, Any]  # returns the answer; None leaves the request open

CHOICES = {
    RequestKind.TOOL_APPROVAL: "Approve? y(es), a(lways; ae edits the rule first), n(o), e(dit the arguments), l(ater)",
    RequestKind.PLAN_APPROVAL: "Approve? y(es), n(o), e(dit the steps), l(ater)",
}


def open_requests(api: Api, task_id: str) -> list[InputRequest]:
    """The open requests of a task to people, oldest first."""
    page = parse(InputRequestPage, api.get(f"/tasks/{segment(task_id)}/input-requests"))
    return [one for one in reversed(page.items) if one.status == "open" and one.kind != RequestKind.EXTERNAL_EVENT]


def all_open_requests(api: Api, conversation_id: str | None = None) -> list[dict[str, Any]]:
    """The open requests of all tasks to people, oldest first, as the server sent them."""
    found = [*api.items("/input-requests", conversation_id=conversation_id, limit=200)][::-1]
    return [one for one in found if one.get("kind") != RequestKind.EXTERNAL_EVENT]


def post_answer(api: Api, task_id: str, request_id: str, value: Any) -> Any:
    body = {"response_to": request_id, "input": value}
    return api.post(f"/tasks/{segment(task_id)}/input", body)


def parse_typed_value(request: InputRequest, text: str) -> Any:
    """Parse what a person typed: an option's number, JSON if the schema needs more than text, else text."""
    options = details_of(request).options
    # before JSON, because the list of options on the screen is numbered
    if text.isdecimal() and 0 < int(text) <= len(options):
        return options[int(text) - 1]
    schema = request.answer_schema or {}
    return _json_or_text(text) if schema and schema.get("type") != "string" else text


def dialogue(request: InputRequest) -> Dialogue:
    match request.kind:
        case RequestKind.TOOL_APPROVAL | RequestKind.PLAN_APPROVAL:
            return _approval(request)
        case RequestKind.EXTERNAL_RESULT:
            return _external_result(request)
        case RequestKind.MISSING_VARIABLES:
            return _variables(request)
        case _:
            return _question(request)


def answer_by_typing(api: Api, request: InputRequest) -> bool:
    """Ask until the answer is accepted, here or elsewhere; False if the request was left open."""
    while True:
        steps = dialogue(request)
        try:
            prompt = next(steps)
            while True:
                prompt = steps.send(read_line(prompt))
        except StopIteration as end:
            value = end.value
        if value is None:
            note("left open")
            return False
        try:
            post_answer(api, request.session_id, request.id, value)
        except Refused as refused:
            note(refused.message)
            # only the form of the answer was refused, so that another one can still be given
            if refused.status == 422:
                continue
            return refused.status == 409  # somebody else was faster
        return True


def read_line(prompt: Prompt) -> str:
    """Read from the terminal with line editing; from a pipe, or if editing is impossible, read one plain line."""
    import sys

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return str(click.prompt(prompt.text, default=prompt.default, show_default=False))
    from prompt_toolkit import prompt as edit  # slow to import

    ends = " (Esc Enter ends it)" if prompt.multiline else ""
    try:
        return edit(
            f"{prompt.text}{ends}: ",
            default=prompt.default,
            multiline=prompt.multiline,
            is_password=prompt.secret,
        )
    except EOFError:  # Ctrl-D
        return ""


def _question(request: InputRequest) -> Dialogue:
    text = yield Prompt("Your answer (empty: later)")
    return parse_typed_value(request, text.strip()) if text.strip() else None


def _external_result(request: InputRequest) -> Dialogue:
    text = yield Prompt("The result, as text or JSON (empty: later)")
    return {"result": parse_typed_value(request, text)} if text else None


def _variables(request: InputRequest) -> Dialogue:
    """Ask for all values: the task starts once it has every one."""
    given: dict[str, str] = {}
    for name in details_of(request).variables:
        given[name] = yield Prompt(f"{name} (empty: later)", secret=True)
        if not given[name]:
            return None
    return given


def _approval(request: InputRequest) -> Dialogue:
    text = CHOICES[RequestKind(request.kind)]
    while True:
        typed = yield Prompt(text)
        word = typed.strip().lower()
        choice = word[:1]
        # an empty line is never a yes: Enter may have been typed ahead, for something else
        if choice in ("", "l"):
            return None
        if choice == "y":
            return {"approved": True}
        if choice == "n":
            notes = yield Prompt("Why not (may be empty)")
            return {"approved": False} | ({"notes": notes} if notes.strip() else {})
        if choice == "e" and request.kind == RequestKind.PLAN_APPROVAL:
            return (yield from _edit_plan(request))
        if choice == "e":
            return (yield from _edit_arguments(request))
        always = details_of(request).always
        # the whole word, since "approve" is no "always"
        if always and word in ("a", "always"):
            return {"approved": True, "always": always}
        if not always or word != "ae":
            note(f"{clean(typed)!r} is none of them")
        elif (value := (yield from _edit_rule(request))) is not None:
            return value


def _edit_arguments(request: InputRequest) -> Dialogue:
    changed: dict[str, Any] = {}
    for name, value in details_of(request).arguments.items():
        before = value if isinstance(value, str) else json.dumps(value)
        typed = yield Prompt(name, default=clean(before))
        if typed == clean(before):
            # not changed by the person: what is shown lacks control characters, and the original must not lose them
            changed[name] = value
        else:
            changed[name] = typed if isinstance(value, str) else _json_or_text(typed)
    # all arguments, because the server takes them in place of the model's own
    return {"approved": True, "arguments": changed}


def _edit_plan(request: InputRequest) -> Dialogue:
    typed = yield Prompt("Steps, one a line", default=clean("\n".join(details_of(request).plan)) + "\n")
    steps = [line.strip() for line in typed.splitlines() if line.strip()]
    return {"approved": True, "plan": steps} if steps else None


def _edit_rule(request: InputRequest) -> Dialogue:
    tool, patterns = details_of(request).tool, list(details_of(request).always)
    note("* matches anything, so that `git log *` allows every such command:")
    for number, pattern in enumerate(patterns):
        typed = yield Prompt(f"allow {tool} (empty: do not make the rule)", default=clean(pattern))
        if not typed.strip():
            return None
        # the original unless it was edited: what is shown lacks control characters
        patterns[number] = pattern if typed == clean(pattern) else typed.strip()
    return {"approved": True, "always": patterns}


def _json_or_text(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError:
        return text


def find_request(
    api: Api, task_id: str | None, request_id: str | None, *, approvals: bool
) -> tuple[InputRequest | None, str, str]:
    """The request that the user means, with its task's id and its own; without ids, the only open one.

    None if the request is no longer open: the server then refuses the answer with the reason.
    """
    if task_id and request_id:
        found = next((one for one in open_requests(api, task_id) if one.id == request_id), None)
        return found, task_id, request_id
    waiting = _keep_fitting(open_requests(api, task_id) if task_id else _everywhere(api), approvals)
    if task_id and not waiting:  # one of its subagents may be waiting
        waiting = _keep_fitting(_everywhere(api, api.task(task_id).conversation_id), approvals)
    if len(waiting) == 1:
        return waiting[0], waiting[0].session_id, waiting[0].id
    wanted = "an approval" if approvals else "an answer"
    if not waiting:
        raise NotFoundError(
            f"{'this task' if task_id else 'no task'} is{' not' if task_id else ''} waiting for {wanted}"
        )
    for request in () if json_wanted() else waiting:
        show_request(request)
        click.echo()
    noun = "approvals" if approvals else "questions"
    candidates = [{"task_id": one.session_id, "request_id": one.id} for one in waiting]
    raise Ambiguous(f"{len(waiting)} {noun} are waiting; give the ids of one", body={"candidates": candidates})


def _everywhere(api: Api, conversation_id: str | None = None) -> list[InputRequest]:
    return [parse(InputRequest, one) for one in all_open_requests(api, conversation_id)]


def _keep_fitting(requests: list[InputRequest], approvals: bool) -> list[InputRequest]:
    return [one for one in requests if (one.kind in APPROVALS) == approvals]
