"""Bodies with pictures and PDFs are long, and delay nobody."""

import base64
import json
import time
from collections.abc import Callable

import pytest

from api.faces.responses.input_files import parse_with_files
from api.http.problems import Unreadable
from domain.pictures import inspect
from tests.support.pictures import pdf, png

MOST = 1_048_576


def body(*urls: str, text: str = "Look.") -> bytes:
    parts = [{"type": "input_file", "filename": "a.pdf", "file_data": one} for one in urls]
    item = {"role": "user", "content": [{"type": "input_text", "text": text}, *parts]}
    return json.dumps({"model": "tester", "input": [item]}).encode()


def data_url(content: bytes) -> str:
    return f"data:;base64,{base64.b64encode(content).decode()}"


def test_files_leave_the_body_as_it_is_read() -> None:
    contents = [pdf(2_000_000), png(), pdf(3_000_000)]
    value, found = parse_with_files(body(*map(data_url, contents)), MOST)
    assert len(json.dumps(value)) < 1_000
    places = [part["file_data"] for part in value["input"][0]["content"][1:]]
    assert [found[place] for place in places] == [(content, inspect(content)) for content in contents]


@pytest.mark.parametrize(
    "long",  # made by the test, so that not every process keeps them all
    [
        lambda: b"[" + b"[]," * 8_000_000 + b"1]",
        lambda: body(text="x" * MOST),
        lambda: body(data_url(pdf(2_000_000)), text="x" * MOST),
        lambda: json.dumps({"input": data_url(pdf(2_000_000))}).encode(),  # in a place where no file is
    ],
    ids=["lists", "text", "text beside a file", "file in another place"],
)
def test_long_body_is_refused_soon_but_for_its_files(long: Callable[[], bytes]) -> None:
    raw, begun = long(), time.thread_time()
    with pytest.raises(Unreadable) as refused:
        parse_with_files(raw, MOST)
    assert (refused.value.type, time.thread_time() - begun < 0.5) == ("body-too-large", True)
