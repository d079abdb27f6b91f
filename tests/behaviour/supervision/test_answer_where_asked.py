"""A person at a terminal answers in place: in `run` and in `chat`, without another terminal."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.supervision.people import agent, answer, ask, bash, output, plan, waiting
from tests.support.stack import Stack, calls, steps
from tests.support.terminal import CTRL_D, Terminal


@pytest.fixture
def environment(people: Stack, tmp_path: Path) -> dict[str, str]:
    return {**people.env, "ERRAND_API_KEY": "", "XDG_STATE_HOME": str(tmp_path)}


async def newest(people: Stack) -> str:
    return str((await people.http.get("/tasks?limit=1&top_level=true")).json()["items"][0]["task_id"])


async def test_chat_takes_answers_approvals_and_plans(people: Stack, environment: dict[str, str]) -> None:
    definition = agent("planner-in-chat", may_ask=True, permissions=[{"permission": "bash", "action": "ask"}])
    assert (await people.http.put("/agents/planner-in-chat", json=definition)).is_success
    planned = steps([plan("look", "burn")], [bash("touch first")])
    body = {"agent": "planner-in-chat", "input": planned, "transport": "stream", "config": {"approval_required": True}}
    conversation = (await people.http.post("/conversations/run", json=body)).json()["conversation_id"]
    await waiting(people, conversation)
    spent = (await people.record(conversation))["usage"]["cost_usd"]

    def talk() -> None:
        with Terminal("chat", "--conversation", conversation, env=environment) as shown:
            shown.expect("May this plan be carried out?")
            shown.expect(f"${spent:.4f} … Approve? y(es), n(o), e(dit the steps), l(ater)")
            shown.type("e")
            shown.expect("burn")
            shown.type("\x7f\x7f\x7f\x7f\x7ftidy up")
            shown.expect("Answered.")
            shown.expect("command: touch first")
            shown.expect("Approve?")
            shown.type("n")
            shown.expect("Why not")
            shown.type("not today")
            shown.expect("Answered.")
            shown.expect("model call")
            shown.type(steps([bash("touch a")], [bash("touch a")], [bash("touch second")]))
            shown.expect("command: touch a")
            shown.expect("allows bash touch a without asking, in this conversation only")
            shown.expect("no network")  # of its command
            shown.expect("Approve?")
            shown.type("approve")
            shown.expect("'approve' is none of them")
            shown.expect("Approve?")
            shown.type("a")
            shown.expect("Answered.")
            # the same command runs again without a question
            shown.expect("command: touch second")
            shown.expect("Approve?")
            shown.type("e")
            shown.expect("command: touch second")
            shown.type("-edited")
            shown.expect("Answered.")
            shown.expect("model call")
            shown.type(steps([ask("Which colour?", options=["red", "blue"])], [bash("touch painted")]))
            shown.expect("1) red")
            shown.expect("Your answer")
            shown.type("2")
            shown.expect("command: touch painted")
            shown.expect("Approve?")
            shown.type("/later")
            shown.expect("Left open; /inbox brings it back.")
            shown.type("/inbox")
            shown.expect("command: touch painted")
            shown.expect("Approve?")
            shown.type("y")
            shown.expect("Answered.")
            shown.expect("blue")
            shown.expect("model call")
            shown.type("", CTRL_D)
            assert shown.exit_code() == 0

    await asyncio.to_thread(talk)
    record = await people.record(conversation)
    assert [step["title"] for step in record["plan"]["steps"]] == ["look", "tidy up"]
    assert "not today" in await output(people, conversation)
    folder = people.workspace(conversation)
    made = await asyncio.to_thread(lambda: {path.name for path in folder.iterdir()})
    assert made & {"first", "a", "second", "second-edited", "painted"} == {"a", "second-edited", "painted"}


SECRETS = ("hunter2-is-the-token", "swordfish-is-the-pin")


async def test_typed_secrets_are_neither_shown_nor_kept(
    people: Stack, environment: dict[str, str], tmp_path: Path
) -> None:
    variables = {name: {"description": name, "kind": "secret"} for name in ("pin", "token")}
    put = await people.http.put("/agents/vault", json=agent("vault", may_ask=True, variables=variables))
    assert put.is_success, put.text

    def talk() -> None:
        with Terminal("chat", "--agent", "vault", env=environment) as shown:
            shown.expect(">")
            shown.type("[[script:say text=first]]")
            assert not shown.echoes  # also while there is no prompt
            for secret in SECRETS:
                shown.expect(" (empty: later):")
                shown.type(secret)
            shown.expect("Answered.")
            shown.expect("model call")
            shown.type("[[script:say text=next]]")
            shown.expect("model call")
            shown.type("", CTRL_D)
            assert shown.exit_code() == 0 and shown.echoes
            assert not any(secret in shown.text for secret in SECRETS)

    await asyncio.to_thread(talk)
    [history] = await asyncio.to_thread(lambda: [*tmp_path.rglob("chat-history")])
    kept = await asyncio.to_thread(history.read_text)
    assert "text=next" in kept and not any(secret in kept for secret in SECRETS)


async def settle(people: Stack, task_id: str, value: Any) -> None:
    """Answer the open request as another person."""
    [request] = await waiting(people, task_id)
    assert (await answer(people, task_id, request["id"], value)).status_code == 202


async def test_half_typed_line_in_chat_answers_no_other_question(people: Stack, environment: dict[str, str]) -> None:
    script = steps([bash("touch first")], [bash("touch second")])
    body = {"agent": "careful", "input": script, "transport": "stream"}
    conversation = (await people.http.post("/conversations/run", json=body)).json()["conversation_id"]
    await waiting(people, conversation)

    def open_chat() -> Terminal:
        shown = Terminal("chat", "--conversation", conversation, env=environment).__enter__()
        shown.expect("command: touch first")
        shown.expect("Approve?")
        shown.type("yes please", "")  # its first letter counts
        shown.expect("yes please")
        return shown

    shown = await asyncio.to_thread(open_chat)
    try:
        await settle(people, conversation, {"approved": False})
        await asyncio.to_thread(shown.expect, "command: touch second")
        await asyncio.to_thread(shown.expect, "Approve?")
        shown.type("")  # Enter: the earlier yes would approve the new request
        await asyncio.to_thread(shown.expect, "Left open")
        shown.type("and my own mess", "")
        await asyncio.to_thread(shown.expect, "and my own mess")
        asking = {"conversation_id": conversation, "input": "x", "transport": "stream", "if_busy": "queue"}
        await people.http.post("/conversations/run", json={**asking, "input": calls(ask("Which colour?"))})
        await settle(people, conversation, {"approved": False})
        await asyncio.to_thread(shown.expect, "Your answer")
        shown.type("blue")
        await asyncio.to_thread(shown.expect, "Answered.")
        await asyncio.to_thread(shown.expect, "> and my own mess")  # the typed message is still there
        shown.type("age")
        await asyncio.to_thread(shown.expect, "model call")
        shown.type("/quit")
        assert await asyncio.to_thread(shown.exit_code) == 0
    finally:
        shown.__exit__()
    turns = (await people.http.get(f"/conversations/{conversation}/turns")).json()["items"]
    assert [turn["input"] for turn in turns][-1] == "and my own message" and len(turns) == 3
    assert "blue" in await output(people, turns[1]["session_id"])
    assert not await asyncio.to_thread((people.workspace(conversation) / "second").exists)
