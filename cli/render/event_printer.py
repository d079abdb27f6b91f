"""Prints a task's events for people, one method for each type of event."""

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
from domain.amounts import format_count
from domain.limits import figure


class EventPrinter:
    """Prints deltas as they come, and the whole text after them only if a part of it was missed."""

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
        try:
            getattr(self, "on_" + event["type"], self._on_unknown)(event)
        # a server of another version may send other fields, and watching must not end because of one event
        except (KeyError, TypeError, ValueError):
            self._on_unknown(event)

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

    def _on_unknown(self, event: EventData) -> None:
        """Print only the type: another version of the server sent the event."""
        self._line(f"  {event['type']}", dim=True)

    def on_task_submitted(self, event: EventData) -> None:
        self._line(f"Task {self._task_id} for {event['agent']}: {one_line(event['title'])}", bold=True)

    def on_task_started(self, event: EventData) -> None:
        self._line(f"  started with {event['model']}", dim=True)

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

    def on_progress(self, event: EventData) -> None:
        self._line(f"  .. {one_line(event['message'])}")

    def on_plan_updated(self, event: EventData) -> None:
        self._line("  plan:")
        for line in plan_lines(map(PlanStep.model_validate, event["steps"])):
            self._line(f"    {line}")

    def on_replanning(self, event: EventData) -> None:
        self._line(f"  replanning: {one_line(event['reason'], 500)}", fg="yellow")

    def on_usage_updated(self, event: EventData) -> None:
        """Printed once, at the end."""

    def on_model_retry(self, event: EventData) -> None:
        when = datetime.fromisoformat(event["next_at"])
        pause = duration(max(0.0, (when - datetime.fromisoformat(event["at"])).total_seconds()))
        self._line(
            f"  {event['model']}: {one_line(event['reason']).rstrip('.')}; attempt {event['attempt']} failed,"
            f" next try at {when.astimezone():%H:%M:%S} (in {pause})",
            fg="yellow",
        )

    def on_model_switched(self, event: EventData) -> None:
        change = f"{event['from_model']} -> {event['to_model']}"
        self._line(f"  model switched: {change} ({one_line(event['reason'])})", fg="yellow")

    def on_context_lost(self, event: EventData) -> None:
        self._line(f"  {one_line(event['text'])}")

    def on_context_compacted(self, event: EventData) -> None:
        self._line(f"  context compacted: {one_line(event['summary'])}", dim=True)

    def on_workspace_not_kept(self, event: EventData) -> None:
        names = ", ".join(one_line(path) for path in event["files"])
        self._line(
            f"  {format_count(event['count'], 'file')} of the workspace not kept: {one_line(names)}", fg="yellow"
        )

    def on_mcp_tool_changed(self, event: EventData) -> None:
        how = "is gone from" if event["gone"] else "has changed at"
        self._line(f"  {one_line(event['tool'])} {how} its MCP server; it was not called", fg="yellow")

    def on_tree_prepared(self, event: EventData) -> None:
        name = f"the repository {event['folder']}" if event.get("folder") else "the repository"
        self._line(f"  {name} is ready: {event['commit'][:12]} on {event['branch']}", dim=True)

    def on_setup_finished(self, event: EventData) -> None:
        if event["ok"]:
            self._line(f"  the setup took {duration(event['seconds'])}", dim=True)
        else:
            self._line(f"  the setup failed: {one_line(event['log'])}", fg="red")

    def on_attempt_chosen(self, event: EventData) -> None:
        chosen = f"  attempt {event['number']} is chosen by {event['chosen_by']}"
        self._line(f"{chosen}: {one_line(event['why'])}", fg="green")

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

    def on_subagent_ended(self, event: EventData) -> None:
        self._line(f"  - {one_line(event['name'])} {event['status']}  [{event['child_session_id']}]", fg="magenta")

    def on_subagent_budget_exceeded(self, event: EventData) -> None:
        self._line(f"  - a subagent's budget is spent ({event['reason']})  [{event['child_session_id']}]", fg="yellow")

    def on_budget_low(self, event: EventData) -> None:
        whose = "the tree's" if event["scope"] == "tree" else "its"
        left, limit = (figure(event["budget"], event[name]) for name in ("left", "limit"))
        self._line(f"  {whose} budget of {event['budget']} is low: {left} of {limit} left", fg="yellow")

    def on_budget_raised(self, event: EventData) -> None:
        whose = "the tree's" if event["scope"] == "tree" else "its"
        before, limit = (figure(event["budget"], event[name]) for name in ("before", "limit"))
        raised = f"{whose} budget of {event['budget']} was raised from {before} to {limit}"
        self._line(f"  {raised} by {one_line(event['by'])}", fg="yellow")

    def on_anomaly(self, event: EventData) -> None:
        self._line(f"  anomaly: {event['kind']} is {event['value']:g} (threshold {event['threshold']:g})", fg="yellow")

    def on_acceptance_checked(self, event: EventData) -> None:
        for verdict in event["verdicts"]:
            mark = click.style("ok", fg="green") if verdict["passed"] else click.style("not met", fg="red")
            self.break_line()
            click.echo(f"  {mark} {one_line(verdict['criterion'])}: {one_line(verdict['why'])}")

    def on_mailbox_updated(self, event: EventData) -> None:
        self._line(f"  mailbox: {event['pending_count']} waiting", dim=True)

    def on_message_received(self, event: EventData) -> None:
        sender = f" from {one_line(event['author'])}" if event.get("author") else ""
        self._line(f"  {event['kind']} message{sender}: {one_line(event['preview'])}", fg="magenta")

    def on_handed_over(self, event: EventData) -> None:
        self._line(f"  handed over from {one_line(event['from_agent'])} to {one_line(event['to_agent'])}", bold=True)

    def on_variables_required(self, event: EventData) -> None:
        missing = one_line(", ".join(event["missing"]))
        self._line(f"  ? subagent {one_line(event['name'])} waits for values of {missing}", fg="magenta", bold=True)

    def on_hook_failed(self, event: EventData) -> None:
        what = f"hook {one_line(event['hook'])} ({event['point']})"
        self._line(f"  {what} failed: {one_line(event['error'])}", fg="yellow")

    def on_input_required(self, event: EventData) -> None:
        self._line(f"  ? {clean(event['question'])}", fg="magenta", bold=True)
        task_id = event.get("session_id", self._task_id)
        self._line(f"    {answer_command(task_id, event['request_id'], event['kind'])}", dim=True)

    def on_input_reminder(self, event: EventData) -> None:
        self._line(f"  ? still waiting: {one_line(event['question'])}", fg="magenta")

    def on_input_escalated(self, event: EventData) -> None:
        self._line(
            f"  ? nobody has answered, {one_line(event['to'])} was notified: {one_line(event['question'])}",
            fg="magenta",
        )

    def on_input_received(self, event: EventData) -> None:
        self._line(f"  answered by {one_line(event['by'])}", fg="magenta")

    def on_input_expired(self, event: EventData) -> None:
        self._line("  nobody answered in time", fg="yellow")

    def on_cancel_requested(self, event: EventData) -> None:
        why = f": {one_line(event['note'])}" if event.get("note") else ""
        self._line(f"  cancel requested by {event['by'] or 'a caller'} ({event['reason']}){why}", fg="yellow")

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
