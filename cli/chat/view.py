"""What a chat shows: the answer as it is written, subagents beside it in single lines, and how much mail waits."""

from collections.abc import Callable
from typing import Any

import click

from cli.render.output import clean, dim, fetch_command, one_line, status_word, usage_line
from cli.render.story import Event, Story

TELLING = ("update_plan", "report_progress")  # tools whose call is told by an event of its own


class AnswerView(Story):
    """The story of an answer without its frame: in a chat only the words and deeds count."""

    def on_task_submitted(self, event: Event) -> None:
        """The message itself stands just above."""

    def on_task_started(self, event: Event) -> None:
        """Told by the first words."""

    def on_step_started(self, event: Event) -> None:
        self._texts.clear()
        self.break_line()

    def on_tool_called(self, event: Event) -> None:
        if event["tool"] not in TELLING:
            super().on_tool_called(event)

    def on_tool_returned(self, event: Event) -> None:
        if event["tool"] not in TELLING or event["state"] != "ok":
            super().on_tool_returned(event)

    def on_plan_updated(self, event: Event) -> None:
        states = [step["status"] for step in event["steps"]]
        now = next((step["title"] for step in event["steps"] if step["status"] == "in_progress"), "")
        settled = sum(state in ("done", "skipped") for state in states)
        self._line(f"  plan: {settled} of {len(states)} settled" + (f"; now: {one_line(now)}" if now else ""), dim=True)

    def on_mailbox_updated(self, event: Event) -> None:
        """Stands in the prompt."""

    def on_artifact_saved(self, event: Event) -> None:
        self._line(f"  saved {one_line(event['name'])}: {fetch_command(self._task_id, event['name'])}", fg="green")

    def _end(self, event: Event) -> None:
        self.break_line()
        if event.get("output") and event["output"] != self._last_message:
            click.echo(clean(event["output"]))
        if event["status"] != "completed":
            click.echo(f"{status_word(event['status'])} ({event['reason']})")
        if event.get("error"):
            self._line(f"  {event['error']}", fg="red")
        click.echo(dim(f"  ({usage_line(event['usage'])})"))


class Aside:
    """A subagent at work: its deeds in single lines, and of its words only the first of the last."""

    def __init__(self, name: str, line: Callable[[str], None]) -> None:
        self._name = name
        self._line = line

    def show(self, event: Event) -> None:
        words = self._words(event)
        if words:
            self._line(dim(f"  | {one_line(self._name)}: ") + words)

    def _words(self, event: Event) -> str:
        match event["type"]:
            case "task_submitted":
                return f"begins ({one_line(event['title'])})"
            case "tool_called" if event["tool"] not in TELLING:
                args = event["args"] if isinstance(event["args"], str) else ""
                return click.style(f"-> {event['tool']} {one_line(args, 100)}", fg="cyan")
            case "progress":
                return one_line(event["message"])
            case "replanning" | "model_retry":
                return click.style(one_line(event["reason"]), fg="yellow")
            case "message_received":
                return one_line(f"is told: {event['preview']}")
            case "task_completed" | "task_failed" | "task_cancelled":
                said = event.get("error") or event.get("output") or ""
                return f"{status_word(event['status'])}. {one_line(said, 120)}".rstrip()
        return ""


class ChatView:
    """Everything that a chat prints for people, so that one thing never lands in the middle of another."""

    def __init__(self, terminal: bool) -> None:
        self._terminal = terminal
        self._prompted = False
        self._answers: dict[str, AnswerView] = {}
        self._asides: dict[str, Aside] = {}
        self._speaking: AnswerView | None = None
        self._held: list[str] = []  # lines of subagents that would fall into a sentence

    def prompt(self, waiting: int) -> None:
        if self._terminal:
            self.clear()
            badge = click.style(f"[{waiting} waiting] ", fg="magenta") if waiting else ""
            click.echo(f"{badge}{click.style('> ', bold=True)}", nl=False)
            self._prompted = True

    def entered(self) -> None:
        """The terminal has echoed a whole line after the prompt."""
        self._prompted = False

    def clear(self) -> None:
        """Begin on a line of its own; an unused prompt gives way."""
        if self._speaking:
            self._speaking.break_line()
        if self._prompted:
            click.echo("\r\x1b[K", nl=False)
            self._prompted = False

    def line(self, text: str) -> None:
        self.clear()
        click.echo(text)

    def note(self, text: str) -> None:
        self.clear()
        click.echo(dim(clean(text)), err=True)

    def answer(self, session_id: str, event: dict[str, Any]) -> None:
        story = self._answers.setdefault(session_id, AnswerView(session_id))
        if self._speaking is not story or self._prompted:
            self.clear()
        self._speaking = story
        story.show(event)
        if not story.mid_line:
            held, self._held = self._held, []
            for line in held:
                click.echo(line)

    def aside(self, session_id: str, name: str, event: dict[str, Any]) -> None:
        self._asides.setdefault(session_id, Aside(name, self._beside)).show(event)

    def _beside(self, text: str) -> None:
        if self._speaking and self._speaking.mid_line:
            self._held.append(text)
        else:
            self.line(text)
