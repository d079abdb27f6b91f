"""Reads whose results the next model call writes: what that call must not miss."""

from tests.support.launch import TESTER
from tests.support.stack import Stack, calls


async def test_a_read_that_sets_variables_is_followed_by_a_call_that_has_them(stack: Stack) -> None:
    town = {"TOWN": {"description": "where", "default": "Rome"}}
    agent = {**TESTER, "name": "dr_reader", "variables": town, "tools": ["assign_by_read"]}
    (await stack.http.put("/agents/dr_reader", json=agent)).raise_for_status()
    record = await stack.run(calls(("assign_by_read", {"values": {"TOWN": "Oslo"}})), "dr_reader")
    assert record["status"] == "completed"
    first, second = [str(request["body"]["system"]) for request in await stack.asked(record["task_id"])]
    assert "Rome" in first and "Oslo" not in first
    assert "Oslo" in second and "Rome" not in second
