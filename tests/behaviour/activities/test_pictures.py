"""Pictures and PDFs: the bytes reach the endpoint as blocks, from every source, or the model reads what it is not
shown."""

import base64
import hashlib
from typing import Any

import pytest

from domain.ids import new_id
from tests.support.launch import TESTER
from tests.support.pictures import pdf, png
from tests.support.stack import Stack, calls, steps

SEE = "[[script:see]]"
CLAUDE, GPT = "claude-opus-4-5", "openai/gpt-4o"


async def upload(stack: Stack, name: str, content: bytes) -> str:
    headers = {"Content-Type": "application/octet-stream"}
    answer = await stack.http.post("/files", params={"name": name}, content=content, headers=headers)
    assert answer.status_code == 201, answer.text
    file_id: str = answer.json()["file_id"]
    return file_id


def seen(kind: str, content: bytes) -> str:
    """What the stand-in says of a file whose bytes it was sent."""
    form = "document" if kind == "application/pdf" else "image"
    return f"[{form} {kind}, {len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}]"


async def test_files_of_a_task_are_shown_and_further_turns_still_show_them(stack: Stack) -> None:
    picture, paper, wrong = png(30, 20, fill=1), pdf(3_000), b"<svg/>"
    large = png(2_100, 2_000, fill=2)
    given = {"paper.pdf": paper, "shot.txt": picture, "fake.png": wrong, "large.png": large}
    ids = [await upload(stack, name, content) for name, content in given.items()]
    task = await stack.run(SEE, context={"files": ids})
    both = [seen("application/pdf", paper), seen("image/png", picture)]
    assert (await stack.result(task["task_id"]))["output"].splitlines() == both
    record = (await stack.http.get(f"/sessions/{task['task_id']}")).json()
    [message] = [one for one in record["display_messages"] if one["type"] == "user"]
    assert "- large.png (not shown: it has 4.2 MB; models are shown png" in message["text"]
    assert [(one["type"], one["name"], one["width"]) for one in message["files"]] == [
        ("document", "paper.pdf", 0),
        ("image", "shot.txt", 30),
    ]
    newer = png(5, 5, fill=9)
    body = {"input": SEE, "agent": "tester", "context": {"files": [await upload(stack, "newer.png", newer)]}}
    said = await stack.http.post(f"/conversations/{task['conversation_id']}/messages", json=body)
    assert said.status_code == 202, said.text
    await stack.wait(said.json()["session_id"])
    output = (await stack.result(said.json()["session_id"]))["output"]
    assert output.splitlines() == [*both, seen("image/png", newer)]
    history = await stack.session(task["task_id"]).fetch_history()
    assert base64.b64encode(picture[:60]) not in str(history.to_json()).encode()
    [nodes] = await stack.pool.fetch(
        "SELECT max(length(body)) AS most FROM messages WHERE session_id = $1", task["task_id"]
    )
    assert nodes["most"] < 3_000


async def test_tool_shows_a_picture_of_the_workspace_and_its_rerun_and_fork_show_it_again(stack: Stack) -> None:
    picture = png(12, 10, fill=3)
    look = steps([("read_file", {"path": "shots/a.png"})], [("list_files", {"path": "."})])
    task = await stack.run(look, context={"files": [await upload(stack, "shots/a.png", picture)]})
    output = (await stack.result(task["task_id"]))["output"]
    assert seen("image/png", picture)[:60] in output
    assert (await stack.result(task["task_id"]))["artifacts"] == []
    [event] = [one for one in await stack.events(task["task_id"]) if one.get("files")]
    [shown] = event["files"]
    assert (event["type"], shown["name"], shown["width"]) == ("tool_returned", "a.png", 12)
    assert (await stack.http.get(f"/files/{shown['file_id']}")).content == picture
    trace = (await stack.http.get(f"/tasks/{task['task_id']}/trace")).json()
    assert trace["steps"][0]["tools"][0]["files"] == [shown]  # as the console draws it
    again = await stack.http.post(f"/tasks/{task['task_id']}/rerun", json={"from_step": 1, "recorded": True})
    await stack.wait(again.json()["task_id"])
    record = (await stack.http.get(f"/sessions/{again.json()['task_id']}")).json()
    assert [one["files"] for one in record["display_messages"] if "files" in one][1:] == [[shown]]
    fork = await stack.run(SEE, context={"history_session": task["task_id"]})
    assert (await stack.result(fork["task_id"]))["output"].splitlines() == [seen("image/png", picture)] * 2


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (png()[:40], "damaged or incomplete"),
        (b"GIF90a;", "is binary"),
    ],
)
async def test_picture_that_no_model_takes_fails_the_call_that_reads_it(stack: Stack, content: bytes, why: str) -> None:
    content += b"" if why != "is binary" else b"\0"
    file_id = await upload(stack, "a.png", content)
    task = await stack.run(calls(("read_file", {"path": "a.png"})), context={"files": [file_id]})
    output = (await stack.result(task["task_id"]))["output"]
    assert "read_file failed: " in output and why in output
    assert why == "is binary" or "models are shown png, jpeg" in output


async def turn(stack: Stack, conversation: str, text: str, **more: Any) -> str:
    """A further turn and its answer."""
    body = {"input": text, "agent": "tester", **more}
    answer = await stack.http.post(f"/conversations/{conversation}/messages", json=body)
    assert answer.status_code == 202, answer.text
    record = await stack.wait(answer.json()["session_id"])
    assert record["status"] == "completed", record["error"]
    return str((await stack.result(record["task_id"]))["output"])


async def test_other_vendor_is_shown_the_same_and_reads_what_it_does_not_take(stack: Stack) -> None:
    picture, tooled, paper = png(7, 7, fill=1), png(8, 8, fill=2), pdf(2_000)
    ids = [await upload(stack, *one) for one in (("a.png", picture), ("b.png", tooled), ("paper.pdf", paper))]
    gpt: dict[str, Any] = {"config": {"model": GPT}}
    look = calls(("read_file", {"path": "b.png"}), ("read_file", {"path": "paper.pdf"}))
    task = await stack.run(look, context={"files": ids}, **gpt)
    assert task["status"] == "completed", task["error"]
    conversation = task["conversation_id"]
    sent = [one["body"]["messages"] for one in await stack.asked(task["task_id"])]
    assert [part["type"] for part in sent[0][1]["content"][:3]] == ["text", "image_url", "image_url"]
    assert "[PDF paper.pdf, 2 kB, file id" in sent[0][1]["content"][0]["text"]
    results, after = [one for one in sent[1] if one["role"] == "tool"], sent[1][-1]
    assert "[PDF paper.pdf, 2 kB" in results[1]["content"] and [one["type"] for one in after["content"][:2]] == [
        "text",
        "image_url",
    ]
    both = [seen("image/png", picture), seen("image/png", tooled)]
    assert (await turn(stack, conversation, SEE, **gpt)).splitlines() == [*both, both[1]]
    document = seen("application/pdf", paper)
    everything = [*both, document, both[1], document]
    assert (await turn(stack, conversation, SEE, config={"model": CLAUDE})).splitlines() == everything
    assert (await turn(stack, conversation, SEE, **gpt)).splitlines() == [*both, both[1]]


@pytest.mark.parametrize("model", [CLAUDE, GPT])
async def test_responses_take_data_urls_and_file_ids_and_keep_no_bytes(stack: Stack, model: str) -> None:
    picture, paper, known = png(40, 30, fill=6), pdf(5_000), png(3, 3, fill=7)
    agent = f"seer-{new_id()[-6:]}"
    (await stack.http.put(f"/agents/{agent}", json={**TESTER, "name": agent, "model": model})).raise_for_status()
    url, data = base64.b64encode(picture).decode(), base64.b64encode(paper).decode()
    content = [
        {"type": "input_text", "text": SEE},
        {"type": "input_image", "image_url": f"data:image/jpeg;base64,{url}", "detail": "auto"},
        {"type": "input_file", "filename": "paper.pdf", "file_data": f"data:application/pdf;base64,{data}"},
        {"type": "input_file", "file_id": await upload(stack, "known.png", known)},
    ]
    body: dict[str, Any] = {"model": agent, "input": [{"role": "user", "content": content}]}
    answer = await stack.http.post("/v1/responses", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    wanted = [seen("image/png", picture), seen("image/png", known)]
    wanted[1:1] = [seen("application/pdf", paper)] if model == CLAUDE else []
    assert answer.json()["output"][-1]["content"][0]["text"].splitlines() == wanted
    kept = await stack.pool.fetchval("SELECT request FROM face_requests WHERE public_id = $1", answer.json()["id"])
    assert url[:80] not in kept and data[:80] not in kept and "file_id" in kept
    further = {"model": agent, "input": SEE, "previous_response_id": answer.json()["id"]}
    again = (await stack.http.post("/v1/responses", json=further, timeout=60)).json()
    assert again["output"][-1]["content"][0]["text"].splitlines() == wanted


async def test_files_stay_as_long_as_a_session_whose_messages_have_them(stack: Stack) -> None:
    picture = png(6, 5, fill=8)
    file_id = await upload(stack, "a.png", picture)
    look = calls(("read_file", {"path": "a.png"}))
    task = await stack.run(look, context={"files": [file_id]})
    [shown] = [one["files"][0]["file_id"] for one in await stack.events(task["task_id"]) if one.get("files")]
    other = await stack.run(SEE, context={"files": [shown]})  # which another conversation is given too
    gone = "SELECT remove_content('default', $1)"
    await stack.pool.execute("UPDATE sessions SET keep_until = now() WHERE id = $1", task["task_id"])
    assert await stack.pool.fetchval(gone, task["conversation_id"])
    assert (await stack.http.get(f"/files/{file_id}")).status_code == 404
    assert await turn(stack, other["conversation_id"], SEE) == seen("image/png", picture)
    await stack.pool.execute("UPDATE sessions SET keep_until = now() WHERE conversation_id = $1", other["task_id"])
    assert await stack.pool.fetchval(gone, other["conversation_id"])
    assert await stack.pool.fetchval("SELECT count(*) FROM files WHERE id = ANY($1)", [file_id, shown]) == 0
