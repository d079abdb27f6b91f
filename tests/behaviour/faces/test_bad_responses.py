"""The Responses API refuses bad requests in OpenAI's format, names the parameter, and changes nothing."""

import base64
from typing import Any

import pytest

from domain.ids import new_id
from tests.support.pictures import png
from tests.support.stack import Stack

SAY = "[[script:say text=x]]"
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}


def data_url(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


IMAGE = {"type": "input_image", "image_url": data_url(png())}


def asks(**fields: Any) -> dict[str, Any]:
    return {"model": "tester", "input": SAY, "background": True, **fields}


REFUSED: list[tuple[dict[str, Any], int, str | None, str]] = [
    (asks(model="nobody"), 404, "model", "model_not_found"),
    (asks(temperature=1.2), 400, "temperature", "validation"),
    (asks(tool_choice={"type": "function", "name": "f"}), 400, "tool_choice.name", "invalid_value"),
    (asks(top_logprobs=3), 400, "top_logprobs", "unsupported_value"),
    (asks(tools=[TOOL, TOOL]), 400, "tools[1].name", "validation"),
    (asks(metadata={"k": "v" * 513}), 400, "metadata.k", "validation"),
    (asks(input="x" * 300_000), 400, "input", "string_above_max_length"),
    (asks(input=[{"role": "user", "content": "x"}] * 1_001), 400, "input", "array_above_max_length"),
    *(
        (asks(input=[{"role": "user", "content": [part]}]), 400, f"input[0].content[0].{param}", code)
        for part, param, code in (
            ({"type": "input_image", "image_url": "https://example.org/a.png"}, "image_url", "unsupported_value"),
            ({"type": "input_image", "image_url": data_url(png(2_100, 2_000))}, "image_url", "invalid_file"),
        )
    ),
    (asks(input=[{"role": "user", "content": [IMAGE] * 21}]), 400, "input", "array_above_max_length"),
    (
        asks(input=[{"role": "user", "content": [{"type": "input_text", "text": "x" * 1_100_000}]}]),
        413,
        None,
        "body_too_large",
    ),
    (
        asks(input=[{"type": "function_call_output", "call_id": f"call_{new_id()}", "output": "x"}]),
        400,
        "input[0].call_id",
        "unknown_call",
    ),
    (asks(input=[{"type": ["message"], "role": "user", "content": "x"}]), 400, "input[0].type", "unsupported_value"),
    (asks(previous_response_id=f"resp_{new_id()}"), 400, "previous_response_id", "previous_response_not_found"),
    (asks(conversation=f"conv_{new_id()}"), 404, None, "unknown_conversation"),
    (asks(conversation="x", previous_response_id="y"), 400, "conversation", "invalid_value"),
    (asks(errand={"approvals": "nobody"}), 400, "errand.approvals", "validation"),
    ([], 400, None, "invalid_value"),  # type: ignore[list-item]
]


@pytest.mark.parametrize("place", range(len(REFUSED)))
async def test_refusals_name_the_parameter(stack: Stack, place: int) -> None:
    body, status, param, code = REFUSED[place]
    before = await stack.pool.fetchval("SELECT count(*) FROM face_requests")
    answer = await stack.http.post("/v1/responses", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code), answer.text
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    assert await stack.pool.fetchval("SELECT count(*) FROM face_requests") == before


async def test_ids_cursors_and_queries_that_do_not_fit(stack: Stack) -> None:
    short = f"resp_{await stack.submit(SAY)}"
    await stack.wait(short.removeprefix("resp_"))
    for path, status, param in (
        (f"resp_{new_id()}", 404, None),
        (f"{short}_2", 404, None),
        # a position that only a longer response would have
        (f"{short}?stream=true&starting_after=999999999", 400, "starting_after"),
        (f"{short}?nonsense=x", 400, "nonsense"),
        (f"{short}/input_items?after=msg_1", 400, "after"),
    ):
        answer = await stack.http.get(f"/v1/responses/{path}")
        assert answer.status_code == status, path
        assert answer.json()["error"]["param"] == param, path
    unknown = await stack.http.get("/v1/models/nobody")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    wrong = await stack.http.get("/v1/models", headers={"Authorization": "Bearer ek_no"})
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (401, "authentication_error")
    foreground = await stack.http.post("/v1/responses", json={"model": "tester", "input": SAY})
    cancel = await stack.http.post(f"/v1/responses/{foreground.json()['id']}/cancel")
    assert (cancel.status_code, cancel.json()["error"]["param"]) == (400, "response_id")
