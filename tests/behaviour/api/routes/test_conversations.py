""""""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from domain.events import EventRow, Progress, UsageUpdated
from domain.sessions.session import Reason, Usage
from store import events, mailbox, sessions, workspaces
from store.database import Pool
from store.sessions import SessionRow
from tests.behaviour.api.conftest import end, key_for, problem, record, ref, run, spawned


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


async def test_files_of_a_steered_message_are_in_the_workspace(api: httpx2.AsyncClient, pool: Pool) -> None:
    first = (await run(api))["session_id"]
    made = [await api.post(f"/files?name={name}.txt", content=b"x") for name in "abc"]
    ids = [answer.json()["file_id"] for answer in made]
    for file_id, busy in zip(ids, ("reject", "queue", "steer"), strict=True):
        body = {"conversation_id": first, "input": "Look.", "if_busy": busy, "context": {"files": [file_id]}}
        answer = await api.post("/conversations/run", json={**body, "transport": "stream"})
        assert answer.status_code == (409 if busy == "reject" else 202), answer.text
    version, manifest = await workspaces.get(pool, "default", first)
    # a refused message adds no files; a queued one adds them when its turn begins
    assert sorted(manifest) == ["c.txt"] and version == 1


@pytest.mark.exactly_once
async def test_repeated_run_returns_the_same_session(api: httpx2.AsyncClient) -> None:
    key = {"Idempotency-Key": "a run"}
    one, two = await run(api, key, input="Once."), await run(api, key, input="Once.")
    assert one == two
    body = {"agent": "assistant", "input": "Twice.", "transport": "stream"}
    problem(await api.post("/conversations/run", json=body, headers=key), 422, "idempotency-key-reused")
    problem(await api.post("/tasks", json={"agent": "assistant", "input": "Once."}, headers=key), 422,
            "idempotency-key-reused")  # fmt: skip


@pytest.mark.proves("S0-02", "S0-01", "S0-B11")
async def test_response_with_sse_is_the_event_stream(api: httpx2.AsyncClient, pool: Pool) -> None:
    body = {"agent": "assistant", "input": "Say hi."}
    async with api.stream("POST", "/conversations/run", json=body) as answer:
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        session_id = answer.headers["x-session-id"]
        assert answer.headers["x-conversation-id"] == session_id
        lines = answer.aiter_lines()
        assert await anext(line async for line in lines if line.startswith("event:")) == "event: task_submitted"
    # the first reader has disconnected; another one reads to the end
    await end(pool, session_id)
    seen = (await api.get(f"/tasks/{session_id}/events")).text
    assert seen.rstrip().splitlines()[-3] == "event: task_completed"
    session = (await api.get(f"/sessions/{session_id}")).json()
    assert (session["kind"], session["transport"]) == ("sync_agent", "sse")
    other = (await run(api))["session_id"]
    assert (await api.get(f"/sessions/{other}")).json()["kind"] == "async_agent"
    for blocking, kind in ((True, "sync_subagent"), (False, "async_subagent")):
        child = await spawned(pool, other, name=f"of-{kind}", blocking=blocking)
        assert (await api.get(f"/sessions/{child}")).json()["kind"] == kind


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
    shown = (await api.get(f"/sessions/{root}")).json()
    assert [kid["session_id"] for kid in shown["children"]] == [child]
    outcome = (await api.get(f"/sessions/{child}")).json()
    assert (outcome["spawned_by"], outcome["delivered_to"]) == (root, None) and outcome["outcome_message_id"]


@pytest.mark.proves("S0-B15")
async def test_turns_list_inputs_and_outputs(api: httpx2.AsyncClient, pool: Pool) -> None:
    first = (await run(api, input={"path": "."}))["session_id"]
    await end(pool, first, output="One.", head="node-1")
    second = (await run(api, conversation_id=first, input="And?"))["session_id"]
    url = f"/conversations/{first}/turns"
    turns = (await api.get(url)).json()["items"]
    assert [(turn["input"], turn["output"]) for turn in turns] == [({"path": "."}, "One."), ("And?", None)]
    assert turns[0]["display_messages"] is None
    assert [turn["parent_session_id"] for turn in turns] == [None, first]
    full = (await api.get(f"{url}?full=true")).json()["items"]
    assert full[1]["display_messages"] == [{"type": "user", "text": "And?"}]
    page = (await api.get(f"{url}?limit=1")).json()
    rest = (await api.get(url, params={"limit": 1, "cursor": page["next_cursor"]})).json()
    assert [turn["session_id"] for turn in rest["items"]] == [second] and rest["next_cursor"] is None
    problem(await api.get(url, params={"cursor": "x"}), 400, "invalid-cursor")


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
    problem(await api.patch(url, json={"status": "open"}), 422, "validation")
    problem(await api.patch(url, json={"title": " \t"}), 422, "validation")
    assert (await api.patch(url, json={"title": " Named "})).json()["title"] == "Named"


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


async def test_conversations_in_the_order_of_their_last_activity(keyed_url: str, pool: Pool) -> None:
    mine, others = await key_for(pool, "active", name="mine"), await key_for(pool, "active", name="others")
    async with httpx2.AsyncClient(base_url=keyed_url, headers=mine, timeout=20) as client:
        first, second, third = [(await run(client))["conversation_id"] for _ in range(3)]
        foreign = (await run(client, others))["conversation_id"]
        await end(pool, first, tenant="active")
        await run(client, conversation_id=first)

        async def page(**query: str | int | None) -> tuple[list[str], str | None]:
            answer = (await client.get("/conversations", params={"order": "updated", **query})).json()
            return [one["conversation_id"] for one in answer["items"]], answer["next_cursor"]

        assert (await page())[0] == [first, foreign, third, second]
        assert (await page(own="true"))[0] == [first, third, second]
        assert (await client.post(f"/conversations/{third}/terminate")).status_code == 202
        assert (await page(own="true", status="open"))[0] == [first, second]
        assert (await page(status="terminated"))[0] == [third]
        seen, cursor = await page(limit=2)
        assert seen == [third, first]
        await client.patch(f"/conversations/{first}", json={"title": "Changed while the list was read"})
        seen, end_of_list = await page(limit=2, cursor=cursor)
        assert (seen, end_of_list) == ([foreign, second], None)  # no conversation is listed twice
        for query in ({"cursor": cursor}, {"cursor": f"{cursor}MTIz", "order": "updated"}):
            problem(await client.get("/conversations", params=query), 400, "invalid-cursor")
        problem(await client.get("/conversations?order=size"), 422, "validation")


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


FIELDS = {
    *("message_id", "conversation_id", "source_session_id", "source_type"),
    *("subagent_name", "created_at", "delivered_to"),
}


@pytest_asyncio.fixture
async def conversation(api: httpx2.AsyncClient, pool: Pool) -> AsyncIterator[str]:
    """A conversation whose root session has ended, with three outcomes in its mailbox."""
    root = (await run(api))["session_id"]
    children = [await spawned(pool, root, name=name) for name in ("one", "two", "three")]
    await end(pool, root, head="node-1")
    await end(pool, children[1], output="Two.")
    await end(pool, children[0], output=None, reason=Reason.ERROR)
    await end(pool, children[2], output="Half.", reason=Reason.INTERRUPTED)
    yield root


@pytest.mark.proves("S0-21", "S0-22", "S0-42")
async def test_mailbox_lists_pending_outcomes(api: httpx2.AsyncClient, pool: Pool, conversation: str) -> None:
    url = f"/conversations/{conversation}/mailbox"
    page = (await api.get(url)).json()
    assert [(item["subagent_name"], item["source_type"]) for item in page["items"]] == [
        ("two", "subagent_result"),
        ("one", "subagent_failed"),
        ("three", "subagent_result"),
    ]
    assert all(set(item) == FIELDS for item in page["items"])
    assert page["pending_count"] == 3
    await mailbox.deliver(pool, "default", [page["items"][0]["message_id"]], "somebody")
    assert [item["subagent_name"] for item in (await api.get(url)).json()["items"]] == ["one", "three"]
    everything = (await api.get(f"{url}?all=true")).json()
    assert [item["delivered_to"] for item in everything["items"]] == ["somebody", None, None]
    first = (await api.get(f"{url}?all=true&limit=2")).json()
    rest = (await api.get(url, params={"all": True, "limit": 2, "cursor": first["next_cursor"]})).json()
    assert [item["subagent_name"] for item in rest["items"]] == ["three"] and rest["next_cursor"] is None
    problem(await api.get(url, params={"cursor": first["next_cursor"]}), 400, "invalid-cursor")
    problem(await api.get(f"{url}?live=true"), 503, "dependency-unavailable")


@pytest.mark.proves("S0-30", "S0-28")
async def test_an_empty_mailbox_fires_nothing(api: httpx2.AsyncClient, pool: Pool) -> None:
    root = (await run(api))["session_id"]
    await end(pool, root, head="node-1")
    before = (await api.get(f"/conversations/{root}")).json()
    key = {"Idempotency-Key": f"fire-{root}"}
    for body in ({}, {"input": "Words."}, {"if_busy": "queue"}):
        answer = await api.post(f"/conversations/{root}/fire", json=body, headers=key)
        problem(answer, 422, "mailbox-empty")
    problem(await api.post(f"/conversations/{root}/fire"), 422, "mailbox-empty")
    assert (await api.get(f"/conversations/{root}")).json() == before
    assert await pool.fetchval("SELECT count(*) FROM inbox WHERE conversation_id = $1", root) == 1
    assert await pool.fetchval("SELECT count(*) FROM idempotency WHERE key = $1", key["Idempotency-Key"]) == 0


async def test_fire_of_unknown_or_terminated_conversations_is_refused(
    api: httpx2.AsyncClient, pool: Pool, conversation: str
) -> None:
    url = f"/conversations/{conversation}/fire"
    problem(await api.post(url, json={"transport": "pigeon"}), 422, "unknown-transport")
    problem(await api.post(url, json={"if_busy": "steer"}), 422, "validation")
    problem(await api.post(url, json={"agent": "nobody"}), 422, "unknown-agent")
    problem(await api.post(url, json={"input": ""}), 422, "validation")
    # the conversation decides about a fire; if it is unavailable, the messages stay and the key can be used again
    key = {"Idempotency-Key": f"fire-{conversation}"}
    problem(await api.post(url, json={"input": "Go."}, headers=key), 503, "dependency-unavailable")
    kept = json.loads(await pool.fetchval("SELECT response FROM idempotency WHERE key = $1", key["Idempotency-Key"]))
    assert await sessions.get(pool, "default", kept["session_id"]) is None
    problem(await api.post(url, json={"input": "Stop."}, headers=key), 422, "idempotency-key-reused")
    assert (await api.get(f"/conversations/{conversation}/mailbox")).json()["pending_count"] == 3
    await api.post(f"/conversations/{conversation}/terminate")
    problem(await api.post(url), 409, "conversation-terminated")
