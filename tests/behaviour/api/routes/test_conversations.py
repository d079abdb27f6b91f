"""Conversations: turns one at a time, forks, what is shown and found, and their feed."""

import asyncio
import json
from typing import Any

import httpx2
import pytest

from domain.events import EventRow, Progress, UsageUpdated
from domain.sessions.session import Usage
from store import events, sessions
from store.database import Pool
from store.sessions import SessionRow
from tests.behaviour.api.conftest import end, problem, record, ref, run, spawned


async def row(pool: Pool, session_id: str) -> SessionRow:
    found = await sessions.get(pool, "default", session_id)
    assert found is not None
    return found


async def counted(api: httpx2.AsyncClient) -> tuple[int, int]:
    tasks = (await api.get("/tasks?limit=200")).json()["items"]
    return len(tasks), len((await api.get("/conversations?limit=200")).json()["items"])


async def refused(api: httpx2.AsyncClient, status: int, type: str, **body: Any) -> dict[str, Any]:
    """Assert that the request is refused and creates nothing."""
    before = await counted(api)
    found = problem(await api.post("/conversations/run", json=body), status, type)
    assert await counted(api) == before
    return found


@pytest.mark.proves("S0-B14")
async def test_a_fork_is_prepared(api: httpx2.AsyncClient, pool: Pool) -> None:
    first = (await run(api, title="The plan"))["session_id"]
    url = f"/conversations/{first}/fork"
    problem(await api.post(url), 409, "not-committed")
    await end(pool, first, head="node-1")
    key = {"Idempotency-Key": f"fork-{first}"}
    answer = await api.post(url, json={"metadata": {"a": 1}}, headers=key)
    again = await api.post(url, json={"metadata": {"a": 1}}, headers=key)
    assert again.json() == answer.json() and again.headers["idempotent-replayed"] == "true"
    copy = await row(pool, answer.json()["session_id"])
    assert (copy.status, copy.output, copy.head, copy.parent_session_id) == ("completed", "Done.", "node-1", first)
    seen = (await api.get(f"/conversations/{copy.id}")).json()
    assert (seen["title"], seen["metadata"], seen["live_sessions"]) == ("The plan (fork)", {"a": 1}, [])
    assert (await row(pool, (await run(api, conversation_id=copy.id))["session_id"])).base_head == "node-1"


async def test_refusals_create_nothing(api: httpx2.AsyncClient, pool: Pool) -> None:
    ended, live = (await run(api))["session_id"], (await run(api))["session_id"]
    await end(pool, ended, head="node-1")
    found = await refused(api, 422, "unknown-transport", agent="assistant", input="x", transport="pigeon")
    assert found["errors"][0]["allowed"] == ["sse", "stream"]
    nobody = "0" * 26
    await refused(api, 404, "unknown-conversation", input="x", conversation_id=nobody)
    await refused(api, 404, "unknown-session", input="x", fork_from=nobody)
    await refused(api, 422, "fork-of-another-conversation", input="x", fork_from=ended, conversation_id=live)
    await refused(api, 409, "not-committed", input="x", fork_from=live)
    await refused(api, 422, "unknown-agent", input="x", agent="nobody", conversation_id=ended)
    await refused(api, 422, "validation", input="x")
    await refused(api, 422, "validation", input="x", conversation_id=ended, context={"history_session": live})
    await refused(api, 422, "validation", input="x", agent="assistant", if_busy="wait")
    await api.post(f"/conversations/{ended}/terminate")
    await refused(api, 409, "conversation-terminated", input="x", conversation_id=ended, transport="stream")
    answer = await api.post(
        "/conversations/run", json={"agent": "assistant", "input": "x"}, headers={"Accept": "image/png"}
    )
    problem(answer, 406, "not-acceptable")


@pytest.mark.proves("S0-B01", "D6")
async def test_conversation_runs_one_session_at_a_time(api: httpx2.AsyncClient, pool: Pool) -> None:
    first = (await run(api))["session_id"]
    await spawned(pool, first)
    await end(pool, first, head="node-1")  # the subagent is still running, but does not make the conversation busy
    body = {"conversation_id": first, "input": "x", "transport": "stream"}
    answers = await asyncio.gather(*(api.post("/conversations/run", json=body) for _ in range(6)))
    [accepted] = [answer for answer in answers if answer.status_code == 202]
    active = accepted.json()["session_id"]
    for answer in answers:
        if answer is not accepted:
            found = problem(answer, 409, "conversation-busy")["active_session"]
            assert found == {
                "session_id": active,
                "stream_key": f"/tasks/{active}/events",
                "transport": "stream",
            }
    assert (await api.get(f"/conversations/{first}")).json()["active_session"]["session_id"] == active


@pytest.mark.exactly_once
async def test_repeated_run_returns_the_same_session(api: httpx2.AsyncClient) -> None:
    key = {"Idempotency-Key": "a run"}
    one, two = await run(api, key, input="Once."), await run(api, key, input="Once.")
    assert one == two
    body = {"agent": "assistant", "input": "Twice.", "transport": "stream"}
    problem(await api.post("/conversations/run", json=body, headers=key), 422, "idempotency-key-reused")
    problem(await api.post("/tasks", json={"agent": "assistant", "input": "Once."}, headers=key), 422,
            "idempotency-key-reused")  # fmt: skip


@pytest.mark.proves("S0-B15", "S0-B21")
async def test_conversation_is_shown_as_a_whole(api: httpx2.AsyncClient, pool: Pool) -> None:
    root = (await run(api, title="Tree"))["session_id"]
    child = await spawned(pool, root)
    below = await spawned(pool, child)
    used = Usage(llm_calls=1, input_tokens=10, output_tokens=3, cost_usd=0.5)
    for model in ("m-1", "m-1", "m-2"):
        await record(pool, root, UsageUpdated(model=model, step=1, call=used, total=used))
    unknown = used.model_copy(update={"cost_usd": None})
    await record(pool, root, UsageUpdated(model="m-2", step=1, call=unknown, total=unknown))
    await end(pool, child)
    seen = (await api.get(f"/conversations/{root}")).json()
    assert (seen["title"], seen["status"], seen["latest_session"]) == ("Tree", "open", root)
    assert seen["mailbox"] == {"pending_count": 1}
    assert seen["live_sessions"] == [root, below]
    [top] = seen["sessions"]
    assert (top["session_id"], top["children"][0]["session_id"]) == (root, child)
    assert top["children"][0]["children"][0]["spawned_by"] == child
    assert [thread["depth"] for thread in seen["threads"]] == [0, 1, 2]
    assert seen["usage"]["m-1"] == {
        **{"requests": 2, "input_tokens": 20, "output_tokens": 6, "cache_read_tokens": 0},
        **{"cache_write_tokens": 0, "cost_usd": 1.0},
    }
    assert seen["usage"]["m-2"]["cost_usd"] is None
    [turn] = (await api.get(f"/conversations/{root}/turns")).json()["items"]
    assert (turn["session_id"], turn["input"], turn["output"]) == (root, "Say hi.", None)
    shown = (await api.get(f"/sessions/{root}")).json()
    assert [kid["session_id"] for kid in shown["children"]] == [child]
    outcome = (await api.get(f"/sessions/{child}")).json()
    assert (outcome["spawned_by"], outcome["delivered_to"]) == (root, None) and outcome["outcome_message_id"]


@pytest.mark.proves("S0-B15")
async def test_conversation_can_be_changed(api: httpx2.AsyncClient) -> None:
    first = (await run(api, metadata={"a": 1, "b": {"deep": None}}))["session_id"]
    url = f"/conversations/{first}"
    changed = (await api.patch(url, json={"metadata": {"a": None, "c": 3}, "title": "New", "delivery": "hold"})).json()
    assert changed["metadata"] == {"b": {"deep": None}, "c": 3}
    assert (changed["title"], changed["delivery"]) == ("New", "hold")
    assert (await api.patch(url, json={"title": "Newer"})).json()["delivery"] == "hold"
    assert (await api.patch(url, json={"delivery": None})).json()["delivery"] is None
    problem(await api.patch(url, json={"delivery": "owl"}), 422, "validation")


async def test_conversations_are_found_by_text_and_metadata(api: httpx2.AsyncClient, pool: Pool) -> None:
    first = (await run(api, input="Find the zebra 100%_sure.", title="Animals", metadata={"zoo": {"n": 1}}))[
        "session_id"
    ]
    await end(pool, first, output="It grazes by the baobab.")

    async def found(**query: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await api.get("/conversations", params=query)).json()["items"]
        return items

    [hit] = await found(q="ZEBRA baobab")
    assert (hit["conversation_id"], hit["match_source"]) == (first, ["input", "output"])
    assert (await found(q="animals"))[0]["match_source"] == ["title"]
    assert [one["conversation_id"] for one in await found(q="100%_sure")] == [first]
    assert await found(q="zebra elephant") == [] and await found(q="z%bra") == []
    assert await found(q="acceptance_criteria") == []  # field names are not searched
    [hit] = await found(metadata=json.dumps({"zoo": {"n": 1}}))
    assert (hit["conversation_id"], hit["match_source"]) == (first, None)
    assert await found(metadata=json.dumps({"zoo": {"n": 2}})) == []
    for bad in ("[]", "x", json.dumps({"a": "\x00"}), '{"a": NaN}', '{"a": 1e999}', r'{"a": "\ud800"}', '{"a":' * 300):
        problem(await api.get("/conversations", params={"metadata": bad}), 422, "validation")
    problem(await api.get("/conversations?q=%00"), 422, "invalid-text")
    page = (await api.get("/conversations?limit=1")).json()
    problem(await api.get("/conversations", params={"q": "x", "cursor": page["next_cursor"]}), 400, "invalid-cursor")


JSON = {"Accept": "application/json"}


async def page(api: httpx2.AsyncClient, conversation_id: str, **query: Any) -> dict[str, Any]:
    answer = await api.get(f"/conversations/{conversation_id}/events", params=query, headers=JSON)
    found: dict[str, Any] = answer.json()
    return found


async def test_conversation_feed_can_be_followed_and_resumed(api: httpx2.AsyncClient, pool: Pool) -> None:
    root = (await run(api))["session_id"]
    await end(pool, root, head="node-1")
    url = f"/conversations/{root}/events"
    async with api.stream("GET", url, headers={"Last-Event-ID": "1"}) as answer:
        seen: list[dict[str, Any]] = []
        ids = []
        later = ""
        async for line in answer.aiter_lines():
            if line.startswith("id:"):
                ids.append(int(line[3:]))
            if line.startswith("data:"):
                seen.append(json.loads(line[5:]))
                if seen[-1]["type"] == "task_completed":  # the end of a session is not the end of the feed
                    later = (await run(api, conversation_id=root))["session_id"]
                if seen[-1]["session_id"] == later:
                    break
    assert [event["type"] for event in seen] == ["task_completed", "task_submitted"]
    assert ids == [1, 2] and seen[-1]["conv_seq"] == 3
    problem(await api.get(url, params={"after": 99}), 409, "cursor-ahead")
    problem(await api.get(url, params={"after": "x"}), 400, "cursor-invalid")


@pytest.mark.parametrize("limit", [1, 7, 100])
async def test_pages_over_two_sessions_repeat_nothing(api: httpx2.AsyncClient, pool: Pool, limit: int) -> None:
    """Each session numbers its events from 1; pages use the numbering of the conversation."""
    root = (await run(api))["session_id"]
    await record(pool, root, *(Progress(message=f"first {number}") for number in range(12)))
    await end(pool, root, head="node-1")
    second = (await run(api, conversation_id=root))["session_id"]
    rows = [EventRow.of(ref(second, conversation_id=root), Progress(message=f"second {n}")) for n in range(12)]
    await events.append(pool, "", rows)
    seen: list[dict[str, Any]] = []
    while found := await page(api, root, limit=limit, after=seen[-1]["conv_seq"] if seen else 0):
        assert found["next_after"] == (found["items"][-1]["conv_seq"] if found["items"] else seen[-1]["conv_seq"])
        if not found["items"]:
            break
        seen += found["items"]
    assert [event["conv_seq"] for event in seen] == list(range(1, len(seen) + 1))
    said = [event["message"] for event in seen if event["type"] == "progress"]
    assert said == [f"{when} {number}" for when in ("first", "second") for number in range(12)]
