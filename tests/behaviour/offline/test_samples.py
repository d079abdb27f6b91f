"""The sample agents on the real stack; cli/test_demos.py has the demos."""

from datetime import datetime
from typing import Any

import pytest

from tests.support.stack import Stack, of_type

NOTES = {
    "crane.md": "The harbour needs a crane by May.\n",
    "money.md": "The harbour has 40,000 left.\n",
    "depth.txt": "The harbour is nine metres deep.\n",
    "people.md": "Two pilots serve the harbour.\n",
}


def seconds(record: dict[str, Any]) -> float:
    return (moment(record["ended_at"]) - moment(record["started_at"])).total_seconds()


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def upload(stack: Stack, name: str, text: str) -> str:
    answer = await stack.http.post(
        "/files", params={"name": name}, content=text.encode(), headers={"Content-Type": "text/plain"}
    )
    file_id: str = answer.json()["file_id"]
    return file_id


@pytest.mark.proves("S0-38", "S0-18", "S0-06")
async def test_three_researchers_take_as_long_as_the_slowest(stack: Stack) -> None:
    files = [await upload(stack, name, text) for name, text in NOTES.items()]
    record = await stack.run("What do we know about the harbour?", "orchestrator", context={"files": files})
    task_id = record["task_id"]
    assert record["status"] == "completed", record
    result = await stack.result(task_id)
    for text in NOTES.values():
        assert text.strip() in result["output"]

    conversation = (await stack.http.get(f"/conversations/{record['conversation_id']}")).json()
    [root] = conversation["sessions"]
    children = [await stack.record(child["session_id"]) for child in root["children"]]
    assert [child["status"] for child in children] == ["completed"] * 3
    took = [seconds(child) for child in children]
    span = max(moment(child["ended_at"]) for child in children) - min(moment(child["started_at"]) for child in children)
    assert span.total_seconds() < max(took) + 1.0
    assert span.total_seconds() < 0.7 * sum(took)

    events = await stack.events(task_id)
    gathered = next(event for event in of_type(events, "tool_returned") if event["tool"] == "gather")
    last = max(moment(child["ended_at"]) for child in children)
    assert abs((moment(gathered["at"]) - last).total_seconds()) < 2.0
    assert len(of_type(events, "subagent_started")) == 3


CALC = "def run(text):\n    return eval(text)\n"
CALC_TEST = """import unittest
import calc

class Runs(unittest.TestCase):
    def test_run(self):
        self.assertEqual(calc.run("1+1"), 3)
"""


async def test_reviewer_reports_real_lines_and_the_check_that_fails(stack: Stack) -> None:
    files = [await upload(stack, "calc.py", CALC), await upload(stack, "test_calc.py", CALC_TEST)]
    record = await stack.run({"path": "."}, "code-reviewer", context={"files": files})
    result = await stack.result(record["task_id"])
    assert result["output"].startswith("Verdict: not ready (2 high, 0 medium, 0 low; no check passed).")
    [review] = [one for one in result["artifacts"] if one["name"] == "review.md"]
    text = (await stack.http.get(review["url"])).text
    assert "calc.py:2: `return eval(text)`" in text and "the check fails: " in text
