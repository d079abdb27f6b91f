"""A chat from a pipe and in a terminal: answers in order, subagents in single lines, waiting mail in the prompt."""

import re
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from domain.events import (
    Event,
    InputRequired,
    MailboxUpdated,
    Message,
    MessageDelta,
    PlanUpdated,
    Progress,
    StepStarted,
    SubagentEnded,
    SubagentStarted,
    TaskCompleted,
    TaskFailed,
    TaskSubmitted,
    ToolCalled,
    ToolReturned,
)
from domain.plan import PlanStep, StepState
from domain.sessions.session import Reason, Status, Usage
from tests.support.terminal import CTRL_D, Terminal
from tests.unit.cli.conftest import Cli, ndjson
from tests.unit.cli.stand_in import TASK, StandIn

CHILD = "01jch00000000000000000000c"
SECOND = "01jsec0000000000000000000c"
DONE = TaskCompleted(
    status=Status.COMPLETED, reason=Reason.GOAL_REACHED, partial=False, usage=Usage(), output="Found it."
)
RUN = "/conversations/run"


def says(text: str, *more: Event) -> list[Event]:
    submitted = TaskSubmitted(agent="assistant", agent_version=1, title="t")
    half = len(text) // 2
    pieces = [MessageDelta(step=1, text=text[:half]), MessageDelta(step=1, text=text[half:])]
    end = DONE.model_copy(update={"output": text})
    return [submitted, StepStarted(step=1, description="d"), *pieces, Message(step=1, text=text), *more, end]


@pytest.fixture
def talk(server: StandIn) -> StandIn:
    """Two answers; a subagent starts during the first one and has not ended yet."""
    server.turns = [(TASK, says("Hello you.")), (SECOND, says("The second answer."))]
    server.sessions[CHILD] = {
        "session_type": "async_subagent",
        "subagent_name": "scout",
        "session_id": CHILD,
        "external_tools": [],
    }
    return server


def test_chat_line_waits_for_the_answer_before_it(talk: StandIn, cli: Cli) -> None:
    done = cli("chat", "--agent", "researcher", input="hi\n\nand now?\n")
    assert done.exit_code == 0, done.output
    assert done.stdout.index("Hello you.") < done.stdout.index("The second answer.")
    assert done.stdout.count("Hello you.") == 1
    first, second = talk.asked_for(RUN)
    assert first == {"agent": "researcher", "input": "hi", "transport": "stream", "if_busy": "queue"}
    assert second["conversation_id"] == TASK and second["input"] == "and now?"
    assert f"./errand chat --conversation {TASK}" in done.stderr


def test_chat_sends_files_with_the_first_message_and_limits_with_each(talk: StandIn, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    options = ["--dir", str(tmp_path / "tree"), "--file", str(tmp_path / "b.txt"), "--model", "m", "--ttl", "1h"]
    done = cli("chat", *options, "--max-cost", "2", "--permission", "bash=ask", input="hi\nand now?\n")
    assert done.exit_code == 0, done.output
    first, second = talk.asked_for(RUN)
    assert first["context"] == {"files": ["file-b.txt"], "archives": ["file-tree.tar.gz"]} and "context" not in second
    for message in (first, second):
        assert message["config"] == {"model": "m", "ttl": 3_600_000, "max_cost_usd": 2}
        assert message["permissions"] == [{"permission": "bash", "action": "ask"}]


def test_chat_exits_with_the_outcome_of_the_last_answer(talk: StandIn, cli: Cli) -> None:
    failed = TaskFailed(status=Status.FAILED, reason=Reason.ERROR, partial=False, usage=Usage(), error="no model")
    talk.turns[1] = (SECOND, [failed])
    done = cli("chat", input="hi\nagain\n")
    assert done.exit_code == 1
    assert "failed (error)" in done.stdout and "no model" in done.stdout
    assert cli("chat", input="").exit_code == 0


def test_chat_prints_subagents_between_sentences_of_the_answer(talk: StandIn, cli: Cli) -> None:
    started = SubagentStarted(child_session_id=CHILD, name="scout", agent="researcher", description="look")
    begin, step, piece, rest, whole, end = says("Sent the scout.")
    talk.turns = [(TASK, [begin, step])]
    talk.emit_in(CHILD)

    def proceed() -> None:
        while not talk.feed:
            time.sleep(0.01)
        talk.emit_in(TASK, piece)
        talk.emit_in(CHILD, TaskSubmitted(agent="researcher", agent_version=1, title="scouting"))
        talk.emit_in(CHILD, ToolCalled(tool="read_file", args="read notes.md"), Progress(message="half way"))
        talk.emit_in(CHILD, ToolCalled(tool="report_progress", args="half way"))
        talk.emit_in(TASK, rest, whole, started, end)
        talk.emit_in(CHILD, MessageDelta(step=1, text="its own words"), DONE)
        talk.emit_in(TASK, SubagentEnded(child_session_id=CHILD, name="scout", status=Status.COMPLETED))

    threading.Thread(target=proceed).start()
    done = cli("chat", input="go\n/wait\n")
    lines = done.stdout.splitlines()
    assert "Sent the scout." in lines and "its own words" not in done.stdout
    assert "  | scout: started (scouting)" in lines and "  | scout: -> read_file read notes.md" in lines
    assert "  | scout: completed. Found it." in lines and "report_progress" not in done.stdout


def test_chat_json_is_every_event_and_nothing_else(talk: StandIn, cli: Cli) -> None:
    talk.answers[f"/conversations/{TASK}/mailbox"] = {"items": [], "pending_count": 0}
    done = cli("chat", "--json", input="hi\n/mailbox\n")
    *events, mailbox = ndjson(done.stdout)
    assert [event["conv_seq"] for event in events] == list(range(1, 7))
    assert mailbox == {"items": [], "pending_count": 0, "next_cursor": None} and done.stderr == ""


def test_chat_resumes_a_cut_stream_at_the_next_event(talk: StandIn, cli: Cli) -> None:
    talk.cut_after = [3]
    done = cli("chat", "--json", input="hi\n")
    assert done.exit_code == 0
    assert [event["conv_seq"] for event in ndjson(done.stdout)] == list(range(1, 7))


def test_chat_commands_that_only_read(talk: StandIn, cli: Cli) -> None:
    message = {
        **{"message_id": "m", "conversation_id": TASK, "source_session_id": CHILD, "source_type": "subagent_failed"},
        **{"subagent_name": "scout", "created_at": "2026-03-01T12:00:00Z", "delivered_to": None},
    }
    talk.answers[f"/conversations/{TASK}/mailbox"] = {"items": [message], "pending_count": 1}
    talk.answers["/agents"] = {"items": [{"name": "scout", "description": "Looks."}]}
    done = cli("chat", input="hi\n/mailbox\n/agents\n/help\n/quit\nnever\n")
    assert done.exit_code == 0
    assert re.search(rf"scout +failed +{CHILD} .* waiting", done.stdout) and "Looks." in done.stdout
    assert "/fire [TEXT]" in done.stderr and len(talk.asked_for(RUN)) == 1


@pytest.mark.parametrize(
    ("line", "code", "error"),
    [
        ("/dance", 2, "no command /dance"),
        ("/fire", 2, "no conversation yet"),
        ("/steer", 2, "/steer TEXT"),
    ],
)
def test_unknown_chat_command_ends_a_script(talk: StandIn, cli: Cli, line: str, code: int, error: str) -> None:
    done = cli("chat", input=f"{line}\nhi\n")
    assert done.exit_code == code and error in done.stderr
    assert talk.asked_for(RUN) == []


def test_refusal_ends_a_chat_script_with_its_exit_code(talk: StandIn, cli: Cli) -> None:
    talk.refusals[f"/conversations/{TASK}/fire"] = (422, {"type": "mailbox-empty", "detail": "It is empty."})
    done = cli("chat", input="hi\n/fire\nand now?\n")
    assert done.exit_code == 5 and "mailbox-empty" in done.stderr
    assert len(talk.asked_for(RUN)) == 1


def test_chat_steer_and_interrupt_do_not_wait_for_the_answer(talk: StandIn, cli: Cli) -> None:
    talk.turns[0] = (TASK, says("Long.")[:-1])
    talk.answers[f"/tasks/{TASK}/steer"] = {}
    talk.answers[f"/tasks/{TASK}/interrupt"] = {"status": "working"}

    def end() -> None:
        while not talk.asked_for(f"/tasks/{TASK}/interrupt"):
            time.sleep(0.01)
        talk.emit_in(TASK, DONE)

    threading.Thread(target=end).start()
    done = cli("chat", input="hi\n/steer faster\n/interrupt\nand now?\n")
    assert done.exit_code == 0
    assert talk.asked_for(f"/tasks/{TASK}/steer") == [{"message": "faster"}]
    assert "The second answer." in done.stdout


def test_chat_joins_an_earlier_conversation_at_its_newest_event(talk: StandIn, cli: Cli) -> None:
    talk.emit_in(TASK, *says("Long ago."))
    talk.answers[f"/conversations/{TASK}"] = record(live_sessions=[CHILD])
    talk.turns.pop(0)

    def end() -> None:
        while not talk.asked_for(f"/conversations/{TASK}"):
            time.sleep(0.01)
        time.sleep(0.2)
        assert talk.asked_for(RUN) == []
        talk.emit_in(CHILD, DONE)

    threading.Thread(target=end).start()
    done = cli("chat", "--conversation", TASK, input="/wait\ngo on\n")
    assert done.exit_code == 0, done.output
    assert "Long ago." not in done.stdout
    assert done.stdout.index("scout: completed") < done.stdout.index("The second answer.")
    assert "agent" not in talk.asked_for(RUN)[0]


def test_chat_leaves_out_bookkeeping_but_no_tool_that_a_caller_brought(talk: StandIn, cli: Cli) -> None:
    """A session that somebody else began with a tool named like one of ours, and a later one without it."""

    def call(preview: str) -> list[Event]:
        returned = ToolReturned(tool="update_plan", state="ok", preview=preview)
        return [ToolCalled(tool="update_plan", args=f"of {preview}"), returned]

    talk.sessions[SECOND] = {"session_type": "agent", "session_id": SECOND, "external_tools": ["update_plan"]}
    talk.turns = [(TASK, says("Done.", *call("ours")))]
    talk.emit_in(SECOND, *says("Theirs.", *call("theirs")))
    printed = cli("chat", input="go\n").stdout
    assert "-> update_plan of theirs" in printed and "update_plan: theirs" in printed, printed
    assert "ours" not in printed


def record(**more: object) -> dict[str, object]:
    return {
        **{"conversation_id": TASK, "title": "Talk", "status": "open", "active_session": None, "live_sessions": []},
        **{"mailbox": {"pending_count": 2}, "usage": {}, "threads": [], "sessions": [], "complete": True},
        **more,
    }


@pytest.fixture
def environment(talk: StandIn, tmp_path: Path) -> dict[str, str]:
    return {"ERRAND_URL": talk.url, "NO_COLOR": "1", "XDG_STATE_HOME": str(tmp_path)}


def test_chat_prompt_shows_waiting_mail_and_errors_do_not_end_a_terminal_chat(
    talk: StandIn, environment: dict[str, str]
) -> None:
    plan = PlanUpdated(
        steps=[PlanStep(title="Look", status=StepState.DONE), PlanStep(title="Tell", status=StepState.IN_PROGRESS)]
    )
    talk.turns[0] = (TASK, says("Hello you.", plan, MailboxUpdated(pending_count=2)))
    with Terminal("chat", env=environment) as shown:
        shown.expect(">")
        shown.type("/dance")
        shown.expect("there is no command /dance")
        shown.type("hi")
        shown.expect("Hello you.")
        shown.expect("plan: 1 of 2 finished; now: Tell")
        shown.expect("[2 waiting]")
        shown.type("", CTRL_D)
        shown.expect(f"./errand chat --conversation {TASK}")
        assert shown.exit_code() == 0


def test_ctrl_c_in_a_chat_only_stops_watching(talk: StandIn, environment: dict[str, str]) -> None:
    talk.turns[0] = (TASK, says("A long answer.")[:-1])
    talk.answers[f"/conversations/{TASK}"] = record(active_session={"session_id": TASK})
    with Terminal("chat", env=environment) as shown:
        shown.expect(">")
        shown.type("hi")
        shown.expect("A long answer.")
        shown.interrupt()
        shown.expect(f"The answer continues ({TASK})")
        shown.type("next")
        shown.expect("The second answer.")
        shown.expect(">")
        shown.interrupt()
        shown.expect("Ctrl-D or /quit leaves.")
        shown.type("/quit")
        shown.expect("Continue with:")
        assert shown.exit_code() == 0
    assert talk.asked_for(f"/tasks/{TASK}/interrupt") == []


def test_ctrl_c_before_the_prompt_is_back_waits_its_turn(talk: StandIn, environment: dict[str, str]) -> None:
    talk.turns[0] = (TASK, says("A long answer.")[:-1])
    with Terminal("chat", env=environment) as shown:
        shown.expect(">")
        talk.open_for_messages.clear()
        shown.type("hi")
        wait_until(lambda: bool(talk.asked_for(RUN)))
        shown.interrupt()  # the message is being sent: there is no prompt, and the terminal turns Ctrl-C into a signal
        talk.open_for_messages.set()
        shown.expect(f"The answer continues ({TASK})")
        shown.type("next")
        shown.expect("The second answer.")
        talk.open_for_messages.clear()
        shown.type("and now?")
        wait_until(lambda: len(talk.asked_for(RUN)) == 3)
        shown.interrupt()
        shown.expect("^C")
        shown.interrupt()  # the second Ctrl-C ends the chat at once
        shown.expect(f"./errand chat --conversation {TASK}")
        assert shown.exit_code() == 130
    assert "Traceback" not in shown.text
    assert [body["input"] for body in talk.asked_for(RUN)] == ["hi", "next", "and now?"]


SECRETS = ("hunter2-is-the-token", "swordfish-is-the-pin")


def test_typed_secrets_are_neither_shown_nor_kept(talk: StandIn, environment: dict[str, str], tmp_path: Path) -> None:
    waiting = InputRequired(
        request_id="r1", kind="missing_variables", question="Which values?", deadline=datetime(2030, 1, 1, tzinfo=UTC)
    )
    talk.turns[0] = (TASK, [*says("Hello.")[:2], waiting])
    request = {
        **{"id": "r1", "session_id": TASK, "kind": waiting.kind, "question": waiting.question, "status": "open"},
        **{"details": {"variables": {"TOKEN": "of the shop", "PIN": "of the door"}}, "on_expiry": "cancel"},
        **{"created_at": "2026-03-01T12:00:00Z", "deadline": "2030-01-01T00:00:00Z"},
    }
    talk.answers[f"/tasks/{TASK}/input-requests"] = {"items": [request], "next_cursor": None}
    talk.answers[f"/tasks/{TASK}/input"] = {}
    with Terminal("chat", env=environment) as shown:
        shown.expect(">")
        talk.open_for_messages.clear()
        shown.type("hi")
        wait_until(lambda: bool(talk.asked_for(RUN)))
        assert not shown.echoes  # also while there is no prompt
        talk.open_for_messages.set()
        for name, secret in zip(("TOKEN", "PIN"), SECRETS, strict=True):
            shown.expect(f"{name} (empty: later):")
            shown.type(secret)
        shown.expect("Answered.")
        assert talk.asked_for(f"/tasks/{TASK}/input")[0]["input"] == dict(zip(("TOKEN", "PIN"), SECRETS, strict=True))
        shown.type("next")
        shown.expect("The second answer.")
        shown.type("", CTRL_D)
        assert shown.exit_code() == 0
        assert shown.echoes
    [history] = tmp_path.rglob("chat-history")
    kept = history.read_text()
    assert "next" in kept and not any(secret in kept or secret in shown.text for secret in SECRETS)


CHANGED_PROMPT = """
import threading
import time
from prompt_toolkit.application import Application
from cli.chat.loop import ChatInputs
from cli.main import errand

invalidate = Application.invalidate
callers = set()

def recorded(app):
    callers.add(threading.current_thread())
    invalidate(app)

Application.invalidate = recorded
with errand.make_context("errand", ["chat"]):
    inputs = ChatInputs(None, 1.0, terminal=True)
    with inputs.reading():
        while not inputs._typing._session.app.is_running:
            time.sleep(0.01)
        inputs.show("changed> ", secret=False, asked=None)
        inputs.get()
print("its own thread alone" if len(callers) == 1 and threading.main_thread() not in callers else callers)
"""


def test_prompt_is_drawn_by_one_thread_alone(environment: dict[str, str]) -> None:
    """Another thread could use an event loop that has ended with the line, and the chat would end with a traceback."""
    with Terminal(argv=(sys.executable, "-c", CHANGED_PROMPT), env=environment) as shown:
        shown.expect("changed>")
        shown.type("a line")
        shown.expect("its own thread alone")
        assert shown.exit_code() == 0


def wait_until(seen: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.01)
