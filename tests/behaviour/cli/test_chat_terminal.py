"""`chat` in a real terminal on the real stack: one conversation over three visits."""

import asyncio
from pathlib import Path

import pytest

from store.keys import Right
from tests.behaviour.conversations.talk import chain
from tests.behaviour.supervision.people import bearer
from tests.support.stack import Stack, of_type
from tests.support.terminal import ALT_ENTER, CTRL_D, TAB, UP, Terminal

MARKDOWN = '[[script:say text="# The log\\n\\nA **bold** word, `code` and\\n\\n- an item"]]'
LIST = chain([("list_files", {})], last="Seen.")
SLOW = "[[script:say words=60 delay=0.15]] tell me slowly"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    for name in ("notes.txt", "other.txt"):
        (tmp_path / "here" / name).write_text(f"This is {name}.\n")
    return tmp_path / "here"


@pytest.fixture
def environment(stack: Stack, tmp_path: Path) -> dict[str, str]:
    return {**stack.env, "XDG_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": "1"}


async def test_chat_over_three_visits(stack: Stack, environment: dict[str, str], folder: Path) -> None:
    await asyncio.to_thread(first_visit, environment, folder)
    conversation = (await stack.http.get("/conversations?limit=1")).json()["items"][0]["conversation_id"]
    turns = (await stack.http.get(f"/conversations/{conversation}/turns")).json()["items"]
    inputs = [turn["input"] for turn in turns]
    assert inputs[0] == MARKDOWN
    assert inputs[1] == inputs[2] == '[[script:say text="Read."]] one\ntwo', (
        "Alt-Enter begins a line; Up brings it back"
    )
    assert [turn["status"] for turn in turns] == ["completed"] * 5
    [listed] = of_type(await stack.events(turns[3]["session_id"]), "tool_returned")
    assert "notes.txt" in listed["preview"] and "other.txt" in listed["preview"]
    others = await bearer(stack, Right.SUBMIT)
    body = {"agent": "tester", "input": "[[script:say text=Foreign.]]", "transport": "stream"}
    assert (await stack.http.post("/conversations/run", json=body, headers=others)).status_code == 202
    await asyncio.to_thread(second_visit, environment, folder)
    await asyncio.to_thread(third_visit, environment, folder)


def first_visit(environment: dict[str, str], folder: Path) -> None:
    with Terminal("chat", "--agent", "tester", env=environment, cwd=folder) as shown:
        shown.expect("/help lists the commands")
        shown.type(MARKDOWN)
        shown.expect("A bold word, code and")  # rendered as Markdown: the source has stars and backticks
        shown.expect("$0.")  # the prompt shows the cost
        shown.type('[[script:say text="Read."]] one', ALT_ENTER)
        shown.type("two")
        shown.expect("Read.")
        shown.expect(">")
        shown.type(UP, "")
        shown.expect("two")
        shown.type("")
        shown.expect("Read.")
        shown.type("/fil", TAB)
        shown.expect("/file")
        shown.type(" notes.txt")
        shown.expect("notes.txt goes along with your next message.")
        shown.type(f"{LIST} compare it with @other.txt, please")
        shown.expect("With notes.txt, other.txt.")
        shown.expect("Seen.")
        shown.type("/file nowhere.txt")
        shown.expect("there is no file 'nowhere.txt'")
        shown.type(SLOW)
        shown.interrupt()  # whether or not the prompt is shown again
        shown.expect("The answer continues")
        shown.type("/watch")
        shown.expect("word")
        shown.expect("word60")
        shown.expect(">")
        shown.type("", CTRL_D)
        shown.expect("Continue with:")
        assert shown.exit_code() == 0


def second_visit(environment: dict[str, str], folder: Path) -> None:
    """Earlier messages are shown again, rendered, and the input history is available."""
    with Terminal("chat", "--continue", env=environment, cwd=folder) as shown:
        shown.expect("A bold word, code and")
        shown.expect("tell me slowly")
        shown.expect(">")
        shown.type(UP, "")
        shown.expect("/watch")
        shown.type("", "\x15")
        shown.type("", CTRL_D)
        assert shown.exit_code() == 0


def third_visit(environment: dict[str, str], folder: Path) -> None:
    with Terminal("chat", "--resume", env=environment, cwd=folder) as shown:
        shown.expect("TITLE")
        shown.expect("Which one")
        shown.type("\x15none")
        shown.expect("Type a number from 1 to")
        shown.expect("Which one")
        shown.type("")  # an empty line selects the first one
        shown.expect("A bold word, code and")
        shown.type("/quit")
        assert shown.exit_code() == 0
