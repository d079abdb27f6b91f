"""Pictures and PDFs: the bytes reach the endpoint as blocks, from every source, or the model reads what it is not
shown."""

import base64
import hashlib
from typing import Any

import pytest

from tests.support.pictures import pdf, png
from tests.support.stack import Stack, calls, steps

SEE = "[[script:see]]"


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
        (png()[:16] + bytes([0, 0, 39, 16] * 2) + png()[24:], "10,000×10,000 pixels"),
        (png(2_100, 2_000), "it has 4.2 MB"),
        (b"GIF90a;", "is binary"),
        (pdf(locked=True), "password"),
    ],
)
async def test_picture_that_no_model_takes_fails_the_call_that_reads_it(stack: Stack, content: bytes, why: str) -> None:
    content += b"" if why != "is binary" else b"\0"
    file_id = await upload(stack, "a.png", content)
    task = await stack.run(calls(("read_file", {"path": "a.png"})), context={"files": [file_id]})
    output = (await stack.result(task["task_id"]))["output"]
    assert "read_file failed: " in output and why in output
    assert why == "is binary" or "models are shown png, jpeg" in output


async def test_newest_pictures_of_a_long_request_are_shown_and_the_others_described(stack: Stack) -> None:
    pictures = [png(4, 4, fill=number) for number in range(22)]
    ids = [await upload(stack, f"{number}.png", one) for number, one in enumerate(pictures)]
    first = await stack.run(SEE, context={"files": ids[:11]})
    body: dict[str, Any] = {"input": SEE, "agent": "tester", "context": {"files": ids[11:]}}
    said = (await stack.http.post(f"/conversations/{first['conversation_id']}/messages", json=body)).json()
    await stack.wait(said["session_id"])
    output = (await stack.result(said["session_id"]))["output"]
    assert output.splitlines() == [seen("image/png", one) for one in pictures[2:]]
    [request] = [one["body"] for one in await stack.asked(first["task_id"]) if len(one["body"]["messages"]) == 3]
    described = [one["text"] for one in request["messages"][0]["content"] if "picture" in one.get("text", "")]
    assert described == [f"[picture {n}.png, 4×4, 88 bytes, file id {ids[n]}: not shown here]" for n in (0, 1)]
