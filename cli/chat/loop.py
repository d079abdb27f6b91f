"""The loop of a chat: handles typed lines and events one at a time."""

import queue
import sys
import threading
from collections import deque
from typing import Any

import click

from cli.chat.commands import COMMANDS, IMMEDIATE
from cli.chat.stdin_lines import stdin_lines
from cli.chat.view import ChatView
from cli.client.api import Api, segment
from cli.client.follow import TERMINAL_EVENTS, follow_conversation
from cli.client.models import EventData, HandleInfo, parse
from cli.commands.tree import show_tree
from cli.errors import CliError, Exit, exit_of
from cli.render.output import PROGRAM, emit

OWN_EVENTS_SHOW_IT = ("subagent_started", "subagent_ended")  # the subagent's first and last events are shown instead


class Chat:
    """A chat. Threads only put lines and events into the queue, and `run` alone takes them out, so nothing is locked.

    Chat commands use the public methods.
    """

    def __init__(
        self,
        api: Api,
        feed: Api,
        agent: str | None,
        conversation_id: str | None,
        patience: float,
        as_json: bool,
        terminal: bool,
    ) -> None:
        self.api = api
        self.as_json = as_json
        self._feed = feed
        self._agent = agent
        self._conversation_id = conversation_id
        self._patience = patience
        self._terminal = terminal and not as_json
        self._view = ChatView(self._terminal)
        self._queue: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._typed: deque[str | None] = deque()
        self._names: dict[str, str | None] = {}  # of sessions; None: it answers the user
        self._awaited: list[str] = []  # answers that are being watched
        self._unwatched: set[str] = set()
        self._running_subagents: set[str] = set()
        self._mail = 0
        self._waiting = False
        self._leaving = False
        self._status = "completed"

    # used by chat commands

    def conversation(self) -> str:
        if self._conversation_id is None:
            raise click.UsageError("there is no conversation yet; send a message first")
        return self._conversation_id

    def running(self) -> str:
        """The session that is writing an answer."""
        if self._awaited:
            return self._awaited[0]
        active = self.api.conversation(self.conversation()).active_session
        if not active:
            raise click.UsageError("no answer is being written")
        return active.session_id

    def watch_answer(self, answer: Any) -> None:
        """Watch the session that was just accepted until it ends."""
        handle = parse(HandleInfo, answer)
        self._names[handle.session_id] = None
        if self._awaited:
            self.note("Queued behind the answer that is being written.")
        self._awaited.append(handle.session_id)
        if self._conversation_id is None:
            self._join(handle.conversation_id, after=0)

    def note(self, text: str) -> None:
        if not self.as_json:
            self._view.note(text)

    def wait_for_subagents(self) -> None:
        self._waiting = True

    def leave(self) -> None:
        self._leaving = True

    # the loop

    def run(self) -> None:
        if self._conversation_id:
            self._resume(self._conversation_id)
        if self._terminal:
            self.note("/help lists the commands, Ctrl-D leaves.")
        threading.Thread(target=self._read, daemon=True).start()
        self._prompt()
        while not self._leaving:
            try:
                self._step(*self._queue.get())
            except KeyboardInterrupt:
                self._stop_watching()
        self._show_resume_command()
        click.get_current_context().exit(int(exit_of(self._status)))

    def _step(self, kind: str, value: Any) -> None:
        if kind == "error":
            raise type(value)(value.message, status=value.status, body=value.body)
        if kind == "note":
            self.note(value)
        elif kind == "event":
            self._handle_event(value)
        else:
            self._view.entered()
            self._typed.append(value)
        while self._typed and not self._leaving and self._may_handle(self._typed[0]):
            self._handle_line(self._typed.popleft())
        self._prompt()

    def _idle(self) -> bool:
        return not self._awaited and not (self._waiting and self._running_subagents)

    def _may_handle(self, line: str | None) -> bool:
        """In a terminal lines are handled as they come; in a script each waits for the answer before it."""
        immediate = line is not None and line.lstrip("/").split(" ")[0] in IMMEDIATE and line.startswith("/")
        return self._terminal or immediate or self._idle()

    def _handle_line(self, line: str | None) -> None:
        if line is None:
            self._leaving = True
            return
        self._waiting = False
        name, _, rest = line.strip().removeprefix("/").partition(" ")
        try:
            if line.startswith("/") and name not in COMMANDS:
                raise click.UsageError(f"there is no command /{name}; /help lists them")
            if line.startswith("/"):
                COMMANDS[name].run(self, rest.strip())
            elif line.strip():
                self._send(line.strip())
        except (CliError, click.UsageError) as error:
            if not self._terminal:
                raise
            self._view.clear()
            click.echo(click.style("Error: ", fg="red") + error.format_message(), err=True)

    def _send(self, text: str) -> None:
        body = {"input": text, "transport": "stream", "if_busy": "queue"}
        if self._conversation_id:
            body |= {"conversation_id": self._conversation_id} | ({"agent": self._agent} if self._agent else {})
        else:
            body |= {"agent": self._agent or "assistant"}
        self.watch_answer(self.api.post("/conversations/run", body))

    def _handle_event(self, event: EventData) -> None:
        if self.as_json:
            emit(event)
        if event["type"] in OWN_EVENTS_SHOW_IT:
            return
        session_id = event["session_id"]
        name = self._subagent_name(session_id)
        ended = event["type"] in TERMINAL_EVENTS
        if event["type"] == "mailbox_updated":
            self._mail = event["pending_count"]
        if self.as_json or session_id in self._unwatched:
            pass
        elif name is None:
            self._view.answer_event(session_id, event)
        else:
            self._view.subagent_event(session_id, name, event)
        if name is not None and ended:
            self._running_subagents.discard(session_id)
        elif name is not None and event["seq"] == 1:
            self._running_subagents.add(session_id)
        elif ended:
            self._status = event["status"]
            self._awaited = [awaited for awaited in self._awaited if awaited != session_id]

    def _subagent_name(self, session_id: str) -> str | None:
        """The name of a subagent; None for a session that answers the user."""
        if session_id not in self._names:
            session = self.api.get(f"/sessions/{segment(session_id)}")
            is_agent = session["session_type"] == "agent"
            self._names[session_id] = None if is_agent else str(session["subagent_name"])
        return self._names[session_id]

    # start, threads and end

    def _resume(self, conversation_id: str) -> None:
        """Continue a conversation; an answer that is being written is watched from its next event."""
        last = self.api.last_event(conversation_id)
        found = self.api.conversation(conversation_id)
        self._mail = found.mailbox.pending_count
        self._awaited = [found.active_session.session_id] if found.active_session else []
        self._running_subagents = set(found.live_sessions) - set(self._awaited)
        if self._terminal:
            show_tree(found)
        self._join(conversation_id, after=last)

    def _join(self, conversation_id: str, after: int) -> None:
        self._conversation_id = conversation_id
        threading.Thread(target=self._follow, args=(conversation_id, after), daemon=True).start()

    def _follow(self, conversation_id: str, after: int) -> None:
        def notify(text: str) -> None:
            self._queue.put(("note", text))

        try:
            for event in follow_conversation(
                self._feed, conversation_id, after=after, patience=self._patience, notify=notify
            ):
                self._queue.put(("event", event))
        except CliError as error:
            self._queue.put(("error", error))

    def _read(self) -> None:
        for line in stdin_lines(sys.stdin):
            self._queue.put(("line", line))
        self._queue.put(("line", None))

    def _prompt(self) -> None:
        if self._idle() and not self._leaving:
            self._view.prompt(self._mail)

    def _stop_watching(self) -> None:
        if not self._terminal:
            self._show_resume_command()
            raise SystemExit(int(Exit.DETACHED))
        for session_id in self._awaited:
            self.note(f"The answer continues; `{PROGRAM} attach {session_id}` shows it, /interrupt stops it.")
        if not self._awaited:
            self.note("Ctrl-D or /quit leaves.")
        self._unwatched |= set(self._awaited)
        self._awaited, self._waiting = [], False
        self._prompt()

    def _show_resume_command(self) -> None:
        if self._conversation_id:
            self.note(f"Continue with: {PROGRAM} chat --conversation {self._conversation_id}")
