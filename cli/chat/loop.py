"""The loop of a chat: what is typed and what happens, one after the other."""

import queue
import sys
import threading
from collections import deque
from typing import Any

import click

from cli.chat.commands import AT_ONCE, COMMANDS
from cli.chat.view import ChatView
from cli.client.api import Api, part
from cli.client.errors import CliError, Exit, exit_of
from cli.client.follow import LAST, follow_conversation
from cli.commands.tree import show_tree
from cli.render.lines import lines
from cli.render.output import PROGRAM, emit

ABOUT_OTHERS = ("subagent_started", "subagent_ended")  # they name the subagent, whose own events tell the same


class Chat:
    """Commands change it through its public methods; only `run` handles what comes, so nothing needs a lock."""

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
        self._happenings: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._typed: deque[str | None] = deque()
        self._names: dict[str, str | None] = {}  # of sessions; None: an answer to us
        self._awaited: list[str] = []  # answers that are being watched
        self._unwatched: set[str] = set()
        self._at_work: set[str] = set()  # subagents
        self._mail = 0
        self._waiting = False
        self._leaving = False
        self._status = "completed"

    # what commands use

    def conversation(self) -> str:
        if self._conversation_id is None:
            raise click.UsageError("there is no conversation yet; say something first")
        return self._conversation_id

    def running(self) -> str:
        """The session that is answering."""
        if self._awaited:
            return self._awaited[0]
        active = self.api.get(f"/conversations/{part(self.conversation())}").get("active_session")
        if not active:
            raise click.UsageError("no answer is being written")
        return str(active["session_id"])

    def expect(self, handle: dict[str, Any]) -> None:
        """An answer to us has been accepted; it is watched until it ends."""
        self._names[handle["session_id"]] = None
        if self._awaited:
            self.say("Queued behind the answer that is being written.")
        self._awaited.append(handle["session_id"])
        if self._conversation_id is None:
            self._join(handle["conversation_id"], after=0)

    def say(self, text: str) -> None:
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
            self.say("/help lists the commands, Ctrl-D leaves.")
        threading.Thread(target=self._read, daemon=True).start()
        self._prompt()
        while not self._leaving:
            try:
                self._step(*self._happenings.get())
            except KeyboardInterrupt:
                self._stop_watching()
        self._goodbye()
        click.get_current_context().exit(int(exit_of(self._status)))

    def _step(self, kind: str, value: Any) -> None:
        if kind == "error":
            raise type(value)(value.message, status=value.status, body=value.body)
        if kind == "note":
            self.say(value)
        elif kind == "event":
            self._happened(value)
        else:
            self._view.entered()
            self._typed.append(value)
        while self._typed and not self._leaving and self._may(self._typed[0]):
            self._handle(self._typed.popleft())
        self._prompt()

    def _idle(self) -> bool:
        return not self._awaited and not (self._waiting and self._at_work)

    def _may(self, line: str | None) -> bool:
        """In a terminal everything is taken at once; in a script it waits its turn."""
        at_once = line is not None and line.lstrip("/").split(" ")[0] in AT_ONCE and line.startswith("/")
        return self._terminal or at_once or self._idle()

    def _handle(self, line: str | None) -> None:
        if line is None:
            self._leaving = True
            return
        self._waiting = False
        name, _, rest = line.strip().removeprefix("/").partition(" ")
        try:
            if line.startswith("/") and name not in COMMANDS:
                raise click.UsageError(f"there is no command /{name}; /help lists them")
            if line.startswith("/"):
                COMMANDS[name][2](self, rest.strip())
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
        self.expect(self.api.post("/conversations/run", body))

    def _happened(self, event: dict[str, Any]) -> None:
        if self.as_json:
            emit(event)
        if event["type"] in ABOUT_OTHERS:
            return
        session_id = event["session_id"]
        name = self._name(session_id)
        ended = event["type"] in LAST
        if event["type"] == "mailbox_updated":
            self._mail = event["pending_count"]
        if self.as_json or session_id in self._unwatched:
            pass
        elif name is None:
            self._view.answer(session_id, event)
        else:
            self._view.aside(session_id, name, event)
        if name is not None and ended:
            self._at_work.discard(session_id)
        elif name is not None and event["seq"] == 1:
            self._at_work.add(session_id)
        elif ended:
            self._status = event["status"]
            self._awaited = [one for one in self._awaited if one != session_id]

    def _name(self, session_id: str) -> str | None:
        """Of a subagent; None for a session that answers us, whoever asked it to."""
        if session_id not in self._names:
            record = self.api.get(f"/sessions/{part(session_id)}")
            answers_us = record["session_type"] == "agent"
            self._names[session_id] = None if answers_us else str(record["subagent_name"])
        return self._names[session_id]

    # the edges

    def _resume(self, conversation_id: str) -> None:
        """Go on where a conversation stands; an answer that is being written is watched from here."""
        last = self.api.last_event(conversation_id)
        found = self.api.get(f"/conversations/{part(conversation_id)}")
        self._mail = found["mailbox"]["pending_count"]
        active = found["active_session"]
        self._awaited = [active["session_id"]] if active else []
        self._at_work = set(found["live_sessions"]) - set(self._awaited)
        if self._terminal:
            show_tree(found)
        self._join(conversation_id, after=last)

    def _join(self, conversation_id: str, after: int) -> None:
        self._conversation_id = conversation_id
        threading.Thread(target=self._follow, args=(conversation_id, after), daemon=True).start()

    def _follow(self, conversation_id: str, after: int) -> None:
        def say(text: str) -> None:
            self._happenings.put(("note", text))

        try:
            for event in follow_conversation(
                self._feed, conversation_id, after=after, patience=self._patience, say=say
            ):
                self._happenings.put(("event", event))
        except CliError as error:
            self._happenings.put(("error", error))

    def _read(self) -> None:
        for line in lines(sys.stdin):
            self._happenings.put(("line", line))
        self._happenings.put(("line", None))

    def _prompt(self) -> None:
        if self._idle() and not self._leaving:
            self._view.prompt(self._mail)

    def _stop_watching(self) -> None:
        if not self._terminal:
            self._goodbye()
            raise SystemExit(int(Exit.DETACHED))
        for session_id in self._awaited:
            self.say(f"The answer goes on; `{PROGRAM} attach {session_id}` shows it, /interrupt stops it.")
        if not self._awaited:
            self.say("Ctrl-D or /quit leaves.")
        self._unwatched |= set(self._awaited)
        self._awaited, self._waiting = [], False
        self._prompt()

    def _goodbye(self) -> None:
        if self._conversation_id:
            self.say(f"Go on with: {PROGRAM} chat --conversation {self._conversation_id}")
