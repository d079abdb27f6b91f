"""Prints a task's events for people: most as one line of a table, some with a method of their own."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click
from errand.models import PlanStep, ShownFile, Usage

from cli.answering import answer_command
from cli.api import EventData
from cli.render.output import (
    PROGRAM,
    clean,
    dim,
    duration,
    fetch_command,
    one_line,
    plan_lines,
    size,
    style_status,
    usage_line,
)
from domain.limits import figure

Style = dict[str, Any]
BOLD: Style = {"bold": True}
DIM: Style = {"dim": True}
GREEN, MAGENTA, YELLOW = (Style(fg=colour) for colour in ("green", "magenta", "yellow"))

# Events that are one line: its text, whose fields are cut to a line each, and its style.
LINES: dict[str, tuple[str, Style]] = {
    "task_started": ("  started with {model}", DIM),
    "progress": ("  .. {message}", {}),
    "replanning": ("  replanning: {reason}", YELLOW),
    "cancel_requested": ("  cancel requested by {by} ({reason}) {note}", YELLOW),
    "model_switched": ("  model switched: {from_model} -> {to_model} ({reason})", YELLOW),
    "context_lost": ("  {text}", {}),
    "context_compacted": ("  context compacted: {summary}", DIM),
    "hook_failed": ("  hook {hook} ({point}) failed: {error}", YELLOW),
    "mcp_tool_changed": ("  {tool} has changed at its MCP server or is gone; it was not called", YELLOW),
    "workspace_not_kept": ("  not kept of the workspace ({count}): {files}", YELLOW),
    "tree_prepared": ("  repository ready: {commit:.12} on {branch} {folder}", DIM),
    "attempt_chosen": ("  attempt {number} is chosen by {chosen_by}: {why}", GREEN),
    "subagent_ended": ("  - {name} {status}  [{child_session_id}]", MAGENTA),
    "subagent_budget_exceeded": ("  - a subagent's budget is spent ({reason})  [{child_session_id}]", YELLOW),
    "handed_over": ("  handed over from {from_agent} to {to_agent}", BOLD),
    "mailbox_updated": ("  mailbox: {pending_count} waiting", DIM),
    "variables_required": ("  ? subagent {name} waits for values of {missing}", MAGENTA | BOLD),
    "input_reminder": ("  ? still waiting: {question}", MAGENTA),
    "input_escalated": ("  ? nobody has answered, {to} was notified: {question}", MAGENTA),
    "input_received": ("  answered by {by}", MAGENTA),
    "input_expired": ("  nobody answered in time", YELLOW),
    "budget_low": ("  budget of {budget} ({scope}) is low: {left} of {limit} left", YELLOW),
    "budget_raised": ("  budget of {budget} ({scope}) was raised from {before} to {limit} by {by}", YELLOW),
    "anomaly": ("  anomaly: {kind} is {value:g} (threshold {threshold:g})", YELLOW),
}
AMOUNTS = ("left", "limit", "before")  # of a budget


class _Fields(dict[str, Any]):
    """The fields of an event as a line shows them, without control codes that a model or a tool wrote."""

    def __init__(self, event: EventData) -> None:
        for name, value in event.items():
            text = ", ".join(map(str, value)) if isinstance(value, list) else value
            if text is not None:
                self[name] = one_line(text, 300) if isinstance(text, str) else text
        if "budget" in event:
            self |= {name: figure(event["budget"], event[name]) for name in AMOUNTS if name in event}

    def __missing__(self, name: str) -> str:
        return ""  # left out, because it has nothing to say


class EventPrinter:
    """Prints deltas as they come, and the whole text after them only if a part of it was missed."""

    silent = frozenset({"usage_updated"})  # events that others show: the end has the usage

    def __init__(self, task_id: str, find_url: Callable[[], str]) -> None:
        self._task_id = task_id
        self._find_url = find_url  # of the server, for links
        self._streaming = ""  # the kind of text on the unfinished line, if any
        self._texts: dict[str, str] = {}  # the text streamed in this step, by kind
        self._last_message = ""
        self._started: datetime | None = None

    def show(self, event: EventData) -> None:
        if event["seq"] == 1:
            self._started = datetime.fromisoformat(event["at"])
        if event["type"] in self.silent:
            return
        try:
            getattr(self, "on_" + event["type"], self._show_line)(event)
        # a server of another version may send other events and fields, and watching must not end because of one
        except (KeyError, TypeError, ValueError):
            self._line(f"  {event['type']}", dim=True)

    @property
    def mid_line(self) -> bool:
        return bool(self._streaming)

    def break_line(self) -> None:
        if self._streaming:
            click.echo()
            self._streaming = ""

    def _line(self, text: str, **style: Any) -> None:
        self.break_line()
        click.echo(click.style(clean(text), **style) if style else clean(text))

    def _stream(self, kind: str, text: str) -> None:
        if self._streaming != kind:
            self.break_line()
            if kind == "thinking":
                click.echo(dim("thinking: "), nl=False)
        self._streaming = kind
        self._texts[kind] = self._texts.get(kind, "") + text
        click.echo(dim(clean(text)) if kind == "thinking" else clean(text), nl=False)

    def _whole(self, kind: str, text: str) -> None:
        """Print the text of a step, unless its deltas have printed all of it."""
        if self._texts.pop(kind, "") != text:
            self.break_line()
            self._stream(kind, text)
            self._texts.pop(kind)
        self.break_line()

    def _show_line(self, event: EventData) -> None:
        line, style = LINES[event["type"]]
        self._line(line.format_map(_Fields(event)).rstrip(), **style)

    def on_task_submitted(self, event: EventData) -> None:
        self._line(f"Task {self._task_id} for {event['agent']}: {one_line(event['title'])}", bold=True)

    def on_step_started(self, event: EventData) -> None:
        self._texts.clear()
        self._line(f"\nStep {event['step']}: {one_line(event['description'])}", bold=True)

    def on_step_completed(self, event: EventData) -> None:
        self.break_line()

    def on_thinking_delta(self, event: EventData) -> None:
        self._stream("thinking", event["text"])

    def on_thinking(self, event: EventData) -> None:
        self._whole("thinking", event["text"])

    def on_message_delta(self, event: EventData) -> None:
        self._stream("message", event["text"])

    def on_message(self, event: EventData) -> None:
        self._whole("message", event["text"])
        self._last_message = event["text"]
        if event.get("interrupted"):
            self._line("  (interrupted here)", fg="yellow")

    def on_attempt_reset(self, event: EventData) -> None:
        if self._texts:
            self._line(f"  (the text of step {event['step']} above was cut off and is written again)", fg="yellow")
        self._line(f"  attempt {event['attempt']}", dim=True)
        self._texts.clear()

    def on_tool_called(self, event: EventData) -> None:
        args = event["args"] if isinstance(event["args"], str) else json.dumps(event["args"])
        self._line(f"  -> {event['tool']} {one_line(args)}", fg="cyan")

    def on_tool_returned(self, event: EventData) -> None:
        colour = "green" if event["state"] == "ok" else "red"
        self.break_line()
        click.echo(
            f"  {click.style(clean(event['state']), fg=colour)} {one_line(event['tool'])}: {one_line(event['preview'])}"
        )
        for file in map(ShownFile.model_validate, event.get("files", [])):
            pixels = f", {file.width}×{file.height}" if file.width else ""
            link = f"{self._find_url().rstrip('/')}/files/{file.file_id}"
            self._line(f"     {one_line(file.name)}{pixels}, {size(file.size)}, {link}", dim=True)

    def on_plan_updated(self, event: EventData) -> None:
        self._line("  plan:")
        for line in plan_lines(map(PlanStep.model_validate, event["steps"])):
            self._line(f"    {line}")

    def on_model_retry(self, event: EventData) -> None:
        when = datetime.fromisoformat(event["next_at"])
        pause = duration(max(0.0, (when - datetime.fromisoformat(event["at"])).total_seconds()))
        self._line(
            f"  {event['model']}: {one_line(event['reason']).rstrip('.')}; attempt {event['attempt']} failed,"
            f" next try at {when.astimezone():%H:%M:%S} (in {pause})",
            fg="yellow",
        )

    def on_setup_finished(self, event: EventData) -> None:
        if event["ok"]:
            self._line(f"  the setup took {duration(event['seconds'])}", dim=True)
        else:
            self._line(f"  the setup failed: {one_line(event['log'])}", fg="red")

    def on_artifact_saved(self, event: EventData) -> None:
        if url := event.get("url"):
            self._line(f"  artifact {one_line(event['name'])} ({event['artifact_type']}): {one_line(url)}", fg="green")
            return
        self._line(
            f"  artifact {one_line(event['name'])} ({event['artifact_type']}, {size(event['size'])})", fg="green"
        )
        self._line(f"    {fetch_command(self._task_id, event['name'])}", dim=True)

    def on_subagent_started(self, event: EventData) -> None:
        label = event["name"] if event["name"] == event["agent"] else f"{event['name']} ({event['agent']})"
        about = f": {one_line(event['description'])}" if event.get("description") else ""
        self._line(f"  + {one_line(label)}{about}  [{event['child_session_id']}]", fg="magenta")

    def on_acceptance_checked(self, event: EventData) -> None:
        for verdict in event["verdicts"]:
            mark = click.style("ok", fg="green") if verdict["passed"] else click.style("not met", fg="red")
            self.break_line()
            click.echo(f"  {mark} {one_line(verdict['criterion'])}: {one_line(verdict['why'])}")

    def on_message_received(self, event: EventData) -> None:
        sender = f" from {one_line(event['author'])}" if event.get("author") else ""
        self._line(f"  {event['kind']} message{sender}: {one_line(event['preview'])}", fg="magenta")

    def on_input_required(self, event: EventData) -> None:
        self._line(f"  ? {clean(event['question'])}", fg="magenta", bold=True)
        task_id = event.get("session_id", self._task_id)
        self._line(f"    {answer_command(task_id, event['request_id'], event['kind'])}", dim=True)

    def on_task_completed(self, event: EventData) -> None:
        self._end(event)

    def on_task_failed(self, event: EventData) -> None:
        self._end(event)

    def on_task_cancelled(self, event: EventData) -> None:
        self._end(event)

    def _end(self, event: EventData) -> None:
        self.break_line()
        if event.get("output") and event["output"] != self._last_message:
            click.echo("\n" + clean(event["output"]))
        partial = ", partial result" if event["partial"] else ""
        used = usage_line(Usage.model_validate(event["usage"]))
        if self._started:
            used += f", {duration((datetime.fromisoformat(event['at']) - self._started).total_seconds())}"
        click.echo(f"\n{style_status(event['status'])} ({event['reason']}{partial}): {used}")
        if event.get("error"):
            self._line(f"  {event['error']}", fg="red")
        click.echo(dim(f"  {PROGRAM} result {self._task_id}"))
