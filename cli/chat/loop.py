"""The loop of a chat: handles typed lines and events one at a time."""

import io
import os
import queue
import re
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from errand.models import Conversation, InputRequest, SessionHandle, Turn

from cli.answering import Dialogue, Prompt, dialogue, open_requests, post_answer, show_request
from cli.api import ENDS, Api, EventData, events_so_far, follow, parse, segment
from cli.chat.commands import COMMANDS, IMMEDIATE
from cli.chat.view import ChatView
from cli.errors import CliError, Exit, exit_of
from cli.ids import write_last
from cli.render.markdown import print_markdown
from cli.render.output import PROGRAM, age, clean, dim, dollars, emit, one_line, style_status
from cli.trees import upload_files, upload_folder
from domain.amounts import format_count
from domain.json_object import JsonObject

if TYPE_CHECKING:
    from cli.chat.terminal_input import TerminalInput

OWN_EVENTS_SHOW_IT = ("subagent_started", "subagent_ended")  # the subagent's first and last events are shown instead


@dataclass
class Brought:
    """What the options of the command give to messages: files and packed folders to the first, the rest to each."""

    files: list[Path] = field(default_factory=list)
    packed: list[bytes] = field(default_factory=list)
    config: JsonObject = field(default_factory=dict)
    permissions: list[dict[str, str]] = field(default_factory=list)


class Chat:
    """A chat. Only `run` takes lines and events from the queue, so that no lock is needed.

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
        no_input: bool,
        brought: Brought,
    ) -> None:
        self.api = api
        self.as_json = as_json
        self._agent = agent
        self._conversation_id = conversation_id
        self._terminal = terminal and not as_json
        self._view = ChatView(self._terminal, api.find_url)
        self._questions = ChatRequests(api)
        self._may_answer, self._inputs = not (as_json or no_input), ChatInputs(feed, patience, self._terminal)
        self._brought = brought
        self._files = brought.files  # for the next message
        self._costs = Costs()
        self._shown: dict[str, int] = {}  # number of the last event shown, by session
        self._typed: deque[str | None] = deque()
        self._names: dict[str, str | None] = {}  # of sessions; None: it answers the user
        self._awaited: list[str] = []  # sessions whose answers are being watched
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
        handle = parse(SessionHandle, answer)
        write_last(self.api.address, handle.session_id)
        self._names[handle.session_id] = None
        if self._awaited:
            self.note("Queued behind the answer that is being written.")
        self._awaited.append(handle.session_id)
        if self._conversation_id is None:
            self._join(handle.conversation_id, after=0)

    def watch_running(self) -> None:
        """Show the running answer from its beginning, and watch it."""
        running = self.running()
        self._unwatched.discard(running)
        self._shown.pop(running, None)
        if running not in self._awaited:
            self._awaited.append(running)
        for event in events_so_far(self.api, running):
            self._handle_event(event)

    def attach_file(self, path: Path) -> None:
        self._files.append(path)

    def load_questions(self) -> None:
        waiting = self.api.conversation(self.conversation()).input_requests
        self._questions.load(waiting)
        if not waiting:
            self.note("nothing is waiting for you")

    def leave_question(self) -> None:
        if self._questions.prompt is None:
            raise click.UsageError("no question is open")
        self.note(self._questions.leave_open())

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
            self.note("/help lists the commands, Alt-Enter begins a new line, Ctrl-D leaves.")
        self._ask()
        self._prompt()
        with self._inputs.reading():
            try:
                while not self._leaving:
                    self._step(*self._inputs.get())
                left_with = exit_of(self._status)
            except KeyboardInterrupt:  # in a script, or twice in a terminal
                left_with = Exit.DETACHED
        self._show_resume_command()
        click.get_current_context().exit(int(left_with))

    def _step(self, kind: str, value: Any) -> None:
        if kind == "error":
            raise type(value)(value.message, status=value.status, body=value.body)
        if kind == "note":
            self.note(value)
        elif kind == "event":
            self._handle_event(value)
        elif kind == "interrupt":
            self._stop_watching()
        elif kind == "late_answer":
            self.note("Not sent: this needs no answer any more.")
        else:
            self._typed.append(value)
        while self._typed and not self._leaving and self._may_handle(self._typed[0]):
            self._handle_line(self._typed.popleft(), may_answer=kind != "message")
        if not self._leaving:
            self._ask()
            self._prompt()

    def _idle(self) -> bool:
        return not self._awaited and not (self._waiting and self._running_subagents)

    def _may_handle(self, line: str | None) -> bool:
        """On a terminal lines are handled as they come; in a script each waits for the answer to the one before it."""
        immediate = line is not None and line.lstrip("/").split(" ")[0] in IMMEDIATE and line.startswith("/")
        answers = line is not None and self._questions.prompt is not None and not line.startswith("/")
        return self._terminal or immediate or answers or self._idle()

    def _handle_line(self, line: str | None, *, may_answer: bool) -> None:
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
            elif may_answer and self._questions.prompt is not None:
                if remark := self._questions.answer(line):
                    self.note(remark)
            elif line.strip():
                self._send(line.strip())
        except (CliError, click.UsageError) as error:
            if not self._terminal:
                raise
            self._view.clear()
            click.echo(click.style("Error: ", fg="red") + error.format_message(), err=True)

    def _send(self, text: str) -> None:
        body: dict[str, Any] = {"input": text, "transport": "stream", "if_busy": "queue"}
        brought = self._brought
        if paths := [*self._files, *named_files(text)]:
            body["context"] = {"files": upload_files(self.api, paths)}
            self.note(f"With {', '.join(one_line(path.name) for path in paths)}.")
        if brought.packed:
            archives = [upload_folder(self.api, packed) for packed in brought.packed]
            body["context"] = body.get("context", {}) | {"archives": archives}
        sent_with_each = {"config": brought.config, "permissions": brought.permissions}
        body |= {name: value for name, value in sent_with_each.items() if value}
        if self._conversation_id:
            body |= {"conversation_id": self._conversation_id} | ({"agent": self._agent} if self._agent else {})
        else:
            body |= {"agent": self._agent or "assistant"}
        self.watch_answer(self.api.post("/conversations/run", body))
        # only after the server has accepted the message, so that a refused one can be sent again with its files
        self._files.clear()
        brought.packed.clear()

    def _handle_event(self, event: EventData) -> None:
        if self.as_json:
            emit(event)
        if event["type"] in OWN_EVENTS_SHOW_IT:
            return
        session_id = event["session_id"]
        if event["seq"] <= self._shown.get(session_id, 0):  # shown already by /watch
            return
        self._shown[session_id] = event["seq"]
        self._costs.note(event)
        name = self._subagent_name(session_id)
        ended = event["type"] in ENDS
        if event["type"] == "mailbox_updated":
            self._mail = event["pending_count"]
        asked = self._may_answer and self._questions.handle_event(event)
        if self.as_json or session_id in self._unwatched or asked:
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

    def _ask(self) -> None:
        """Show the next open question, if there is one."""
        if self._may_answer and self._questions.new:
            self._view.clear()
            prompt = self._questions.ask()
            if not self._terminal:
                self.note(prompt.text)

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
        # read first: events between the two reads then come again through the feed, and none is missed
        last = self.api.last_event(conversation_id)
        found = self.api.conversation(conversation_id)
        self._mail = found.mailbox.pending_count
        self._awaited = [found.active_session.session_id] if found.active_session else []
        self._running_subagents = set(found.live_sessions) - set(self._awaited)
        if self._terminal:
            show_past(self.api, found)
            for event in (event for running in found.live_sessions for event in events_so_far(self.api, running)):
                self._costs.note(event)
            self._costs.begin_with([used.cost_usd for used in found.usage.values()])
        if self._may_answer:
            self._questions.load(found.input_requests)
        if self._terminal and found.active_session:
            self.watch_running()
        self._join(conversation_id, after=last)

    def _join(self, conversation_id: str, after: int) -> None:
        self._conversation_id = conversation_id
        self._inputs.follow(conversation_id, after)

    def _prompt(self) -> None:
        """The text before the cursor: the question that a line would answer, waiting mail, and the cost so far."""
        asked = self._questions.prompt
        badge = click.style(f"[{self._mail} waiting] ", fg="magenta") if self._mail else ""
        cost = click.style(f"{dollars(self._costs.total)} ", dim=True) if self._costs.total else ""
        busy = click.style("… ", dim=True) if self._awaited else ""
        message = badge + cost + busy + click.style(f"{asked.text}: " if asked else "> ", bold=True)
        message = click.unstyle(message) if click.get_current_context().color is False else message
        self._inputs.show(message, asked, self._questions.asked)

    def _stop_watching(self) -> None:
        for session_id in self._awaited:
            self.note(f"The answer continues ({session_id}); /watch shows it, /interrupt stops it.")
        if not self._awaited:
            self.note("Ctrl-D or /quit leaves.")
        self._unwatched |= set(self._awaited)
        self._awaited, self._waiting = [], False

    def _show_resume_command(self) -> None:
        if self._conversation_id:
            self.note(f"Continue with: {PROGRAM} chat --conversation {self._conversation_id}")


# typed lines and events of the conversation, each from a thread, in one queue


class ChatInputs:
    """Collects inputs. The threads only put items into the queue."""

    def __init__(self, feed: Api, patience: float, terminal: bool) -> None:
        self._feed = feed
        self._patience = patience
        self._queue: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._prompt: Prompt | None = None  # None: it asks for a message
        self._asked: str | None = None  # the request that the prompt asks for
        self._typing = self._terminal_input() if terminal else None

    def get(self) -> tuple[str, Any]:
        """The next line, event, note, error or Ctrl-C, with its kind.

        A line that was entered on a terminal while something else was asked for is a `message` or a `late_answer`.
        """
        kind, value = self._queue.get()
        if kind == "typed":
            line, asked = value
            expected = line is None or asked == self._asked
            return "line" if expected else "message" if asked is None else "late_answer", line
        return kind, value

    def show(self, message: str, prompt: Prompt | None, asked: str | None) -> None:
        """Set the text before the cursor, and what is asked for: the answer to a request, or a message."""
        if self._typing:
            default = prompt.default if prompt and prompt is not self._prompt else ""
            self._typing.show(message, secret=bool(prompt and prompt.secret), asked=asked, default=default)
        self._prompt, self._asked = prompt, asked

    @contextmanager
    def reading(self) -> Iterator[None]:
        """The period in which lines are read; on a terminal all output appears above the prompt."""
        if self._typing:
            with self._typing.reading():
                yield
            return
        # a daemon, because a read from a pipe cannot be interrupted at the end of the chat
        threading.Thread(target=self._read, daemon=True).start()
        yield

    def follow(self, conversation_id: str, after: int) -> None:
        threading.Thread(target=self._follow, args=(conversation_id, after), daemon=True).start()

    def _terminal_input(self) -> "TerminalInput":
        from cli.chat.terminal_input import TerminalInput  # slow to import, and only for terminals

        return TerminalInput(lambda kind, value: self._queue.put((kind, value)))

    def _follow(self, conversation_id: str, after: int) -> None:
        def notify(text: str) -> None:
            self._queue.put(("note", text))

        try:
            for event in follow(
                self._feed, conversation_id, after=after, conversation=True, patience=self._patience, notify=notify
            ):
                self._queue.put(("event", event))
        except CliError as error:
            # raised in the main thread later, because here it would only end this thread
            self._queue.put(("error", error))

    def _read(self) -> None:
        for line in stdin_lines(sys.stdin):
            self._queue.put(("line", line))
        self._queue.put(("line", None))


# lines from a pipe, read in a thread


def stdin_lines(stream: IO[str]) -> Iterator[str]:
    """Yield lines without their line ends.

    It bypasses Python's own buffer: a thread that waits there holds its lock, and the interpreter could not exit.
    """
    try:
        descriptor = stream.fileno()
    except (OSError, io.UnsupportedOperation):
        yield from (line.rstrip("\r\n") for line in stream)
        return
    rest = b""
    while chunk := os.read(descriptor, 65_536):
        # split as bytes: a character of several bytes may be cut between two reads
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.decode(errors="replace").rstrip("\r") for line in whole)
    if rest:
        yield rest.decode(errors="replace")


# questions and approvals: the next typed line answers the oldest open one


SETTLED = ("input_received", "input_expired")


class ChatRequests:
    """The open requests of a conversation, oldest first; the dialogue with the user is about the first of them."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._open: deque[InputRequest] = deque()
        self._dialogue: Dialogue | None = None
        self.prompt: Prompt | None = None  # the question for the next line; None: the next line is a message

    def handle_event(self, event: EventData) -> bool:
        """Add a new request, or drop one that was settled; True if there is something to show."""
        if event["type"] == "input_required":
            # the event lacks what is needed for the decision; and the request may be settled by now
            new = [one for one in open_requests(self._api, event["session_id"]) if one.id == event["request_id"]]
            self._open.extend(one for one in new if one.id not in self._ids())
            return bool(new)
        if event["type"] in SETTLED and event["request_id"] in self._ids():
            first = self._open[0].id == event["request_id"]
            self._open = deque(one for one in self._open if one.id != event["request_id"])
            # the line that is being typed must not answer the request that follows
            if first:
                self._dialogue = self.prompt = None
        return False

    def load(self, requests: list[InputRequest]) -> None:
        """Add all open requests of the conversation."""
        self._dialogue = self.prompt = None
        self._open = deque(requests)

    @property
    def new(self) -> bool:
        """Whether there is a request that was not shown yet."""
        return self._dialogue is None and bool(self._open)

    @property
    def asked(self) -> str | None:
        """The id of the request that the next line answers."""
        return self._open[0].id if self.prompt is not None else None

    def ask(self) -> Prompt:
        """Show the first open request and begin its dialogue."""
        show_request(self._open[0], hint=False)
        return self._begin()

    def _begin(self) -> Prompt:
        self._dialogue = dialogue(self._open[0])
        self.prompt = next(self._dialogue)
        return self.prompt

    def answer(self, line: str) -> str | None:
        """Handle a typed line; returns a remark for the user once the request was answered or left open."""
        assert self._dialogue is not None
        try:
            self.prompt = self._dialogue.send(line)
            return None
        except StopIteration as end:
            value: Any = end.value
        self._dialogue = self.prompt = None
        request = self._open[0]
        if value is None:
            return self.leave_open()
        try:
            post_answer(self._api, request.session_id, request.id, value)
        except Exception as refused:
            if getattr(refused, "status", 0) == 422:
                self._begin()  # ask again
            else:
                self._open.popleft()
            raise
        self._open.popleft()
        return "Answered."

    def leave_open(self) -> str:
        self._open.popleft()
        self._dialogue = self.prompt = None
        return "Left open; /inbox brings it back."

    def _ids(self) -> set[str]:
        return {one.id for one in self._open}


# the cost of a conversation, read from its events


class Costs:
    """Dollars by session. A session that was running when the chat began is counted only by its own events."""

    def __init__(self) -> None:
        self._by_session: dict[str, float | None] = {}

    def note(self, event: EventData) -> None:
        used = event.get("total") if event["type"] == "usage_updated" else event.get("usage")
        if isinstance(used, dict) and "cost_usd" in used:
            self._by_session[event["session_id"]] = used["cost_usd"]

    def begin_with(self, known: list[float | None]) -> None:
        """The costs so far, by model; costs of running sessions were noted before."""
        # minus what running sessions have noted, because their next event replaces their own share
        self._by_session[""] = sum(cost or 0.0 for cost in known) - self.total

    @property
    def total(self) -> float:
        """The total, without models that have no price."""
        return sum(cost for cost in self._by_session.values() if cost is not None)


# the earlier turns, for a user who returns to a conversation


TURNS_SHOWN = 20


def show_past(api: Api, conversation: Conversation) -> None:
    click.echo(click.style(one_line(conversation.title), bold=True) + dim(f"  {conversation.conversation_id}"))
    turns = _turns(api, conversation.conversation_id)
    if len(turns) > TURNS_SHOWN:
        click.echo(dim(f"({format_count(len(turns) - TURNS_SHOWN, 'earlier turn')})"))
    for turn in turns[-TURNS_SHOWN:]:
        text = turn.input if isinstance(turn.input, str) else str(turn.input or "")
        click.echo("\n" + click.style("> ", bold=True) + clean(text) + dim(f"   {age(turn.created_at)}"))
        if turn.output:
            print_markdown(turn.output)
        if turn.status not in ("completed", "working", "submitted"):
            click.echo(style_status(turn.status) + (f" ({turn.reason})" if turn.reason else ""))
    click.echo()


def _turns(api: Api, conversation_id: str) -> list[Turn]:
    return [parse(Turn, one) for one in api.items(f"/conversations/{segment(conversation_id)}/turns", limit=200)]


# files attached to a message: named with /file, or as @path in its text


_AT_PATH = re.compile(r"(?:^|(?<=\s))@(\S+)")


def named_files(text: str) -> list[Path]:
    """The files that a message names as @path; any other @ is plain text."""
    # a path at the end of a sentence has its punctuation
    paths = [Path(name.rstrip(".,;:!?)")).expanduser() for name in _AT_PATH.findall(text)]
    return [path for path in dict.fromkeys(paths) if path.is_file()]
