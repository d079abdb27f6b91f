"""The sample mission: it watches the tests of a folder, repairs a copy, saves a patch, and sends a notification."""

import asyncio
import json
from pathlib import Path
from typing import Any

from domain.ids import new_id
from tests.behaviour.missions.test_missions import create, show
from tests.behaviour.notifications.receivers import http_receiver
from tests.behaviour.notifications.subscribers import Subscribers
from tests.support.command import cli
from tests.support.stack import Stack, eventually

SHOP = "def total(prices):\n    sum = 0\n    for price in prices:\n        sum = sum - price\n    return sum\n"
SHOP_TEST = """import unittest
from shop import total

class Totals(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([1, 2]), 3)
"""
MEND = "Mend what makes `python3 -m unittest -q` fail."
CHECK = "python3 -m unittest -q >/tmp/log 2>&1 && exit 3; cat /tmp/log"


async def errand(stack: Stack, *argv: str) -> Any:
    said = await cli(stack, "schedules", *argv, "--json")
    assert said.exit_code == 0, said.output
    return json.loads(said.stdout)


async def run(stack: Stack, name: str, schedule_id: str) -> dict[str, Any]:
    """Start one run by hand and wait for its end."""
    known = len((await errand(stack, "runs", name))["items"])
    await errand(stack, "trigger", name)

    async def over() -> dict[str, Any] | None:
        runs = (await stack.http.get(f"/schedules/{schedule_id}/runs")).json()["items"]
        latest: dict[str, Any] = runs[0] if len(runs) > known else {}
        ended = latest.get("status") == "skipped" or latest.get("task_status") in ("completed", "failed")
        return latest if ended else None

    return await eventually(over)


async def test_a_mission_mends_a_copy_of_a_folder_and_hands_in_a_patch(stack: Stack, tmp_path: Path) -> None:
    folder, name = tmp_path / "shop", f"m-{new_id()}"
    folder.mkdir()
    (folder / "shop.py").write_text(SHOP)
    (folder / "test_shop.py").write_text(SHOP_TEST)
    async with http_receiver() as receiver:
        watcher = Subscribers(stack)
        subscription = await watcher.subscribe(f"{receiver.url}/", events=["task_completed"])
        options = ["--dir", str(folder), "--every", "1d", "--check", CHECK, "--total-runs", "9"]
        made = await errand(stack, "add", name, "mender", MEND, *options, "--notify", subscription["name"])
        newer = await create(stack)  # a name selects its own schedule, not the newest one
        assert (await errand(stack, "show", name))["id"] == made["id"] != newer["id"]
        first = await run(stack, name, made["id"])
        assert (first["status"], first["task_status"]) == ("fired", "completed")
        result = await stack.result(first["session_id"])
        assert "AssertionError: -3 != 3" in result["output"]
        [artifact] = result["artifacts"]
        patch = tmp_path / artifact["name"]
        patch.write_bytes((await stack.http.get(artifact["url"])).content)
        assert (folder / "shop.py").read_text() == SHOP  # only the copy was changed
        delivery = await watcher.delivery(subscription, status="delivered")
        assert delivery["task_id"] == first["session_id"]
        assert (await run(stack, name, made["id"]))["status"] == "skipped"  # the copy is repaired
        await errand(stack, "push", name, "--dir", str(folder))
        assert (await run(stack, name, made["id"]))["task_status"] == "completed"  # the folder itself is not repaired
        applied = await asyncio.create_subprocess_exec("patch", "-p1", "-i", str(patch), cwd=folder)
        assert await applied.wait() == 0
        await errand(stack, "push", name, "--dir", str(folder))
        assert (await run(stack, name, made["id"]))["status"] == "skipped"
        assert (await show(stack, made))["total"]["runs"] == 2
        await errand(stack, "remove", name)
        assert (await errand(stack, "show", name))["mission"]["status"] == "cancelled"
        assert (await stack.http.put(f"/schedules/{made['id']}/files", json={})).status_code == 409
        await stack.http.delete(f"/subscriptions/{subscription['id']}")
