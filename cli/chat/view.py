"""The output of a chat: the answer as it is written, subagents in single lines, and the count of waiting outcomes."""

from collections.abc import Callable

import click
from errand.models import Usage

from cli.api import EventData
from cli.render.event_printer import EventPrinter
from cli.render.markdown import MarkdownStream
from cli.render.output import clean, dim, fetch_command, one_line, style_status, usage_line
from domain.agents.definition import HAVE_OWN_EVENT


class AnswerPrinter(EventPrinter):
    """Prints an answer in a chat: text and tool calls, without the task's own lines around them, and without calls that
    an event of their own shows."""

    # the user's message is on the line above, the first text shows the start, and the prompt has the count of outcomes
    silent = EventPrinter.silent | {"task_submitted", "task_started", "mailbox_updated"}

    def on_step_started(self, event: EventData) -> None:
        self._texts.clear()
        self.break_line()

    def on_tool_called(self, event: EventData) -> None:
        if event["tool"] not in HAVE_OWN_EVENT:
            super().on_tool_called(event)

    def on_tool_returned(self, event: EventData) -> None:
        if event["tool"] not in HAVE_OWN_EVENT or event["state"] != "ok":
            super().on_tool_returned(event)

    def on_plan_updated(self, event: EventData) -> None:
        states = [step["status"] for step in event["steps"]]
        now = next((step["title"] for step in event["steps"] if step["status"] == "in_progress"), "")
        finished = sum(state in ("done", "skipped") for state in states)
        current = f"; now: {one_line(now)}" if now else ""
        self._line(f"  plan: {finished} of {len(states)} finished{current}", dim=True)

    def on_artifact_saved(self, event: EventData) -> None:
        url = event.get("url")
        where = one_line(url) if url else fetch_command(self._task_id, event["name"])
        self._line(f"  saved {one_line(event['name'])}: {where}", fg="green")

    def _end(self, event: EventData) -> None:
        self.break_line()
        if event.get("output") and event["output"] != self._last_message:
            self._whole("message", event["output"])
        if event["status"] != "completed":
            click.echo(f"{style_status(event['status'])} ({event['reason']})")
        if event.get("error"):
            self._line(f"  {event['error']}", fg="red")
        click.echo(dim(f"  ({usage_line(Usage.model_validate(event['usage']))})"))


class MarkdownPrinter(AnswerPrinter):
    """Prints an answer on a terminal in whole blocks, so that a prompt can stay below it."""

    def __init__(self, task_id: str, find_url: Callable[[], str]) -> None:
        super().__init__(task_id, find_url)
        self._blocks = MarkdownStream()
        self._thought = ""

    @property
    def mid_line(self) -> bool:
        return not self._blocks.empty

    def break_line(self) -> None:
        self._blocks.finish()
        thought, self._thought = self._thought, ""
        if thought.strip():
            click.echo(dim("thinking: " + one_line(thought, 2_000)))
        self._streaming = ""

    def _stream(self, kind: str, text: str) -> None:
        if self._streaming != kind:
            self.break_line()
        self._streaming = kind
        self._texts[kind] = self._texts.get(kind, "") + text
        if kind == "thinking":
            self._thought += text
        else:
            self._blocks.write(text)


class SubagentPrinter:
    """Prints the activity of a subagent in single lines, and only the beginning of its last text."""

    def __init__(self, name: str, line: Callable[[str], None]) -> None:
        self._name = name
        self._line = line

    def show(self, event: EventData) -> None:
        text = self._text(event)
        if text:
            self._line(dim(f"  | {one_line(self._name)}: ") + text)

    def _text(self, event: EventData) -> str:
        match event["type"]:
            case "task_submitted":
                return f"started ({one_line(event['title'])})"
            case "tool_called" if event["tool"] not in HAVE_OWN_EVENT:
                args = event["args"] if isinstance(event["args"], str) else ""
                return click.style(f"-> {event['tool']} {one_line(args, 100)}", fg="cyan")
            case "progress":
                return one_line(event["message"])
            case "replanning" | "model_retry":
                return click.style(one_line(event["reason"]), fg="yellow")
            case "message_received":
                return one_line(f"received: {event['preview']}")
            case "task_completed" | "task_failed" | "task_cancelled":
                outcome = event.get("error") or event.get("output") or ""
                return f"{style_status(event['status'])}. {one_line(outcome, 120)}".rstrip()
        return ""


class ChatView:
    """Prints everything in a chat, so that no line is printed in the middle of another."""

    def __init__(self, terminal: bool, find_url: Callable[[], str]) -> None:
        self._find_url = find_url
        self._printer = MarkdownPrinter if terminal else AnswerPrinter
        self._answers: dict[str, AnswerPrinter] = {}
        self._subagents: dict[str, SubagentPrinter] = {}
        self._current: AnswerPrinter | None = None
        self._held: list[str] = []  # lines of subagents that would be printed inside a sentence

    def clear(self) -> None:
        """Start a new line."""
        if self._current:
            self._current.break_line()

    def line(self, text: str) -> None:
        self.clear()
        click.echo(text)

    def note(self, text: str) -> None:
        self.clear()
        click.echo(dim(clean(text)), err=True)

    def answer_event(self, session_id: str, event: EventData) -> None:
        printer = self._answers.setdefault(session_id, self._printer(session_id, self._find_url))
        if self._current is not printer:
            self.clear()
        self._current = printer
        printer.show(event)
        if not printer.mid_line:
            held, self._held = self._held, []
            for line in held:
                click.echo(line)

    def subagent_event(self, session_id: str, name: str, event: EventData) -> None:
        self._subagents.setdefault(session_id, SubagentPrinter(name, self._subagent_line)).show(event)

    def _subagent_line(self, text: str) -> None:
        if self._current and self._current.mid_line:
            self._held.append(text)
        else:
            self.line(text)
