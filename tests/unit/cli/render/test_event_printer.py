"""The printer shows each event to people."""

from datetime import UTC, datetime, timedelta
from string import Formatter

import click
from click.testing import CliRunner

from cli.render.event_printer import LINES, EventPrinter
from domain import events as e
from domain.events import EVENTS
from domain.json_object import JsonObject
from domain.pictures import FileBlock
from domain.sessions.session import Reason, Status, Usage

USAGE = Usage(llm_calls=3, tool_invocations=2, input_tokens=12_000, output_tokens=345, cost_usd=0.05)

PICTURE = FileBlock(type="image", file_id="f2", name="a.png", media_type="image/png", size=120, width=30, height=20)


def ended(status: Status = Status.COMPLETED, reason: Reason = Reason.GOAL_REACHED, **more: object) -> e.Ended:
    values: dict[str, object] = {"status": status, "reason": reason, "partial": False, "usage": USAGE, **more}
    return e.ENDED[status].model_validate(values)


TASK, URL, BEGAN = "01jzzzzzzzzzzzzzzzzzzzzzzz", "http://server", datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def numbered(*events: e.Event) -> list[JsonObject]:
    return [
        {"type": one.type, "seq": seq, "session_id": TASK, "at": (BEGAN + timedelta(seconds=seq)).isoformat()}
        | one.model_dump(mode="json")
        for seq, one in enumerate(events, start=1)
    ]


def shown(*events: e.Event) -> str:
    return printed(numbered(*events))


def printed(events: list[JsonObject]) -> str:
    @click.command()
    def command() -> None:
        printer = EventPrinter(TASK, lambda: URL)
        for event in events:
            printer.show(event)

    return CliRunner().invoke(command, catch_exceptions=False).stdout


def test_printer_shows_a_whole_task() -> None:
    text = shown(
        e.TaskSubmitted(agent="assistant", agent_version=1, title="Look around"),
        e.TaskStarted(model="claude-x"),
        e.StepStarted(step=1, description="Look at the files"),
        e.ThinkingDelta(step=1, text="Where to "),
        e.ThinkingDelta(step=1, text="begin?"),
        e.Thinking(step=1, text="Where to begin?"),
        e.MessageDelta(step=1, text="I look "),
        e.MessageDelta(step=1, text="around."),
        e.Message(step=1, text="I look around."),
        e.ToolCalled(tool="bash", args='{"command": "ls\\n -l"}'),
        e.ToolReturned(tool="bash", state="failed", preview="no such\nfile", files=[PICTURE]),
        e.ModelRetry(
            step=2,
            attempt=2,
            model="claude-x",
            reason="overloaded",
            next_at=datetime(2026, 3, 1, 12, 0, 25, tzinfo=UTC),
        ),
        e.ArtifactSaved(name="my report's.md", artifact_type="markdown", file_id="f1", size=2_500),
        e.StepCompleted(step=1, result="done"),
        ended(output="I look around."),
    )
    for line in (
        f"Task {TASK} for assistant: Look around",
        "Step 1: Look at the files",
        "thinking: Where to begin?\nI look around.\n",
        '  -> bash {"command": "ls\\n -l"}',
        "  failed bash: no such file",
        f"     a.png, 30×20, 120 B, {URL}/files/f2\n",
        "claude-x: overloaded; attempt 2 failed, next try at ",
        "(in 13 s)",
        "  artifact my report's.md (markdown, 2.5 kB)\n",
        f"    ./errand result {TASK} --artifact 'my report'\"'\"'s.md' -o FILE\n",
        "completed (goal_reached): 3 model calls, 2 tool calls, 12,345 tokens, $0.0500, 14 s",
    ):
        assert line in text
    assert text.count("I look around.") == 1  # neither the whole message nor the output repeats the deltas
    assert "\x1b" not in text


def test_printer_knows_every_event_and_its_fields() -> None:
    known = {*LINES, *EventPrinter.silent, *(name.removeprefix("on_") for name in dir(EventPrinter))}
    assert {event.type for event in EVENTS} <= known
    for event in EVENTS:
        if event.type in LINES:
            fields = {name for _, name, _, _ in Formatter().parse(LINES[event.type][0]) if name}
            assert fields <= event.model_fields.keys() | {"session_id"}, event.type


def test_control_codes_of_models_and_tools_never_reach_the_terminal() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m\rsafe\u202e"
    text = shown(
        e.MessageDelta(step=1, text=evil),
        e.Message(step=1, text=evil),
        e.ToolCalled(tool=evil, args=evil),
        e.ToolReturned(tool=evil, state="ok", preview=evil),
        ended(output=evil, error=evil),
    )
    assert "safe" in text
    assert not set(text) & set("\x1b\x07\x9b\r\u202e")
