"""A task's events as a story for people: what is shown of each, in the order in which they come."""

import json
from datetime import datetime
from typing import Any

import click

from cli.render.output import PROGRAM, clean, dim, fetch_command, one_line, size, status_word, usage_line
from cli.render.output import duration as spell
from cli.render.requests import how_to_answer
from domain.limits.budget import figure

Event = dict[str, Any]

TICKS = {"done": "[x]", "in_progress": "[>]", "skipped": "[-]"}


def plan_lines(steps: list[dict[str, Any]]) -> list[str]:
    return [f"{TICKS.get(step['status'], '[ ]')} {one_line(step['title'])}" for step in steps]


class Story:
    """Deltas are printed as they come; the whole text after them is printed only where it adds something."""

    def __init__(self, task_id: str) -> None:
        self._task_id = task_id
        self._streaming = ""  # the kind of text on the unfinished line, if any
        self._texts: dict[str, str] = {}  # what was streamed of this step, by kind
        self._last_message = ""
        self._began: datetime | None = None

    def show(self, event: Event) -> None:
        if event["seq"] == 1:
            self._began = datetime.fromisoformat(event["at"])
        try:
            getattr(self, "on_" + event["type"], self._on_unknown)(event)
        except (KeyError, TypeError):
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
        """Replaces the deltas of its step, which may have been missed or only partly seen."""
        if self._texts.pop(kind, "") != text:
            self.break_line()
            self._stream(kind, text)
            self._texts.pop(kind)
        self.break_line()

    def _on_unknown(self, event: Event) -> None:
        """An event, or a shape of one, that only another version of the server knows."""
        self._line(f"  {event['type']}", dim=True)

    def on_task_submitted(self, event: Event) -> None:
        self._line(f"Task {self._task_id} for {event['agent']}: {one_line(event['title'])}", bold=True)

    def on_task_started(self, event: Event) -> None:
        self._line(f"  started with {event['model']}", dim=True)

    def on_step_started(self, event: Event) -> None:
        self._texts.clear()
        self._line(f"\nStep {event['step']}: {one_line(event['description'])}", bold=True)

    def on_step_completed(self, event: Event) -> None:
        self.break_line()

    def on_thinking_delta(self, event: Event) -> None:
        self._stream("thinking", event["text"])

    def on_thinking(self, event: Event) -> None:
        self._whole("thinking", event["text"])

    def on_message_delta(self, event: Event) -> None:
        self._stream("message", event["text"])

    def on_message(self, event: Event) -> None:
        self._whole("message", event["text"])
        self._last_message = event["text"]
        if event.get("interrupted"):
            self._line("  (interrupted here)", fg="yellow")

    def on_attempt_reset(self, event: Event) -> None:
        if self._texts:
            self._line(f"  (void: the text of step {event['step']} above was cut off and begins again)", fg="yellow")
        self._line(f"  attempt {event['attempt']}", dim=True)
        self._texts.clear()

    def on_tool_called(self, event: Event) -> None:
        args = event["args"] if isinstance(event["args"], str) else json.dumps(event["args"])
        self._line(f"  -> {event['tool']} {one_line(args)}", fg="cyan")

    def on_tool_returned(self, event: Event) -> None:
        colour = "green" if event["state"] == "ok" else "red"
        self.break_line()
        click.echo(
            f"  {click.style(clean(event['state']), fg=colour)} {one_line(event['tool'])}: {one_line(event['preview'])}"
        )

    def on_progress(self, event: Event) -> None:
        self._line(f"  .. {one_line(event['message'])}")

    def on_plan_updated(self, event: Event) -> None:
        self._line("  plan:")
        for line in plan_lines(event["steps"]):
            self._line(f"    {line}")

    def on_replanning(self, event: Event) -> None:
        self._line(f"  replanning: {one_line(event['reason'], 500)}", fg="yellow")

    def on_usage_updated(self, event: Event) -> None:
        """Told once, at the end."""

    def on_model_retry(self, event: Event) -> None:
        when = datetime.fromisoformat(event["next_at"])
        pause = spell(max(0.0, (when - datetime.fromisoformat(event["at"])).total_seconds()))
        self._line(
            f"  {event['model']}: {one_line(event['reason'])}; attempt {event['attempt']} failed,"
            f" next try at {when.astimezone():%H:%M:%S} (in {pause})",
            fg="yellow",
        )

    def on_model_switched(self, event: Event) -> None:
        change = f"{event['from_model']} -> {event['to_model']}"
        self._line(f"  model switched: {change} ({one_line(event['reason'])})", fg="yellow")

    def on_context_compacted(self, event: Event) -> None:
        self._line(f"  context compacted: {one_line(event['summary'])}", dim=True)

    def on_artifact_saved(self, event: Event) -> None:
        self._line(
            f"  artifact {one_line(event['name'])} ({event['artifact_type']}, {size(event['size'])})", fg="green"
        )
        self._line(f"    {fetch_command(self._task_id, event['name'])}", dim=True)

    def on_subagent_started(self, event: Event) -> None:
        label = event["name"] if event["name"] == event["agent"] else f"{event['name']} ({event['agent']})"
        about = f": {one_line(event['description'])}" if event.get("description") else ""
        self._line(f"  + {one_line(label)}{about}  [{event['child_session_id']}]", fg="magenta")

    def on_subagent_ended(self, event: Event) -> None:
        self._line(f"  - {one_line(event['name'])} {event['status']}  [{event['child_session_id']}]", fg="magenta")

    def on_subagent_budget_exceeded(self, event: Event) -> None:
        self._line(f"  - a subagent's budget is spent ({event['reason']})  [{event['child_session_id']}]", fg="yellow")

    def on_budget_low(self, event: Event) -> None:
        whose = "the tree's" if event["scope"] == "tree" else "its"
        left, limit = (figure(event["budget"], event[name]) for name in ("left", "limit"))
        self._line(f"  {whose} budget of {event['budget']} is low: {left} of {limit} left", fg="yellow")

    def on_anomaly(self, event: Event) -> None:
        self._line(f"  anomaly: {event['kind']} is {event['value']:g} (from {event['threshold']:g} on)", fg="yellow")

    def on_acceptance_checked(self, event: Event) -> None:
        for one in event["verdicts"]:
            mark = click.style("ok", fg="green") if one["passed"] else click.style("not met", fg="red")
            self._line(f"  {mark} {one_line(one['criterion'])}: {one_line(one['why'])}")

    def on_mailbox_updated(self, event: Event) -> None:
        self._line(f"  mailbox: {event['pending_count']} waiting", dim=True)

    def on_message_received(self, event: Event) -> None:
        sender = f" from {one_line(event['author'])}" if event.get("author") else ""
        self._line(f"  {event['kind']} message{sender}: {one_line(event['preview'])}", fg="magenta")

    def on_input_required(self, event: Event) -> None:
        self._line(f"  ? {clean(event['question'])}", fg="magenta", bold=True)
        task_id = event.get("session_id", self._task_id)
        self._line(f"    {how_to_answer(task_id, event['request_id'], event['kind'])}", dim=True)

    def on_input_reminder(self, event: Event) -> None:
        self._line(f"  ? still waits: {one_line(event['question'])}", fg="magenta")

    def on_input_escalated(self, event: Event) -> None:
        self._line(
            f"  ? nobody has answered, {one_line(event['to'])} is told: {one_line(event['question'])}", fg="magenta"
        )

    def on_input_received(self, event: Event) -> None:
        self._line(f"  answered by {one_line(event['by'])}", fg="magenta")

    def on_input_expired(self, event: Event) -> None:
        self._line("  nobody answered in time", fg="yellow")

    def on_cancel_requested(self, event: Event) -> None:
        why = f": {one_line(event['note'])}" if event.get("note") else ""
        self._line(f"  cancel requested by {event['by'] or 'a caller'} ({event['reason']}){why}", fg="yellow")

    def on_task_completed(self, event: Event) -> None:
        self._end(event)

    def on_task_failed(self, event: Event) -> None:
        self._end(event)

    def on_task_cancelled(self, event: Event) -> None:
        self._end(event)

    def _end(self, event: Event) -> None:
        self.break_line()
        if event.get("output") and event["output"] != self._last_message:
            click.echo("\n" + clean(event["output"]))
        partial = ", partial result" if event["partial"] else ""
        click.echo(
            f"\n{status_word(event['status'])} ({event['reason']}{partial}): {usage_line(event['usage'])}", nl=False
        )
        if self._began:
            took = (datetime.fromisoformat(event["at"]) - self._began).total_seconds()
            click.echo(f", {spell(took)}", nl=False)
        click.echo()
        if event.get("error"):
            self._line(f"  {event['error']}", fg="red")
        click.echo(dim(f"  {PROGRAM} result {self._task_id}"))
