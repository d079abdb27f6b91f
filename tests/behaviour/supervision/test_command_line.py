"""Input requests, answered from the command line."""

import json

from tests.behaviour.supervision.people import ask, bash, output, plan, waiting
from tests.support.command import cli
from tests.support.stack import Stack, calls, steps


async def test_the_inbox_shows_all_that_is_needed_and_takes_answers(people: Stack) -> None:
    options = ["the left one", "the right one"]
    task_id = await people.submit(calls(ask("Which?", options=options), bash("touch a"), bash("touch b")), "careful")
    await waiting(people, task_id, 3)
    mine = ("inbox", "--conversation", task_id)
    listed = await cli(people, *mine)
    for text in ("Which?", "1) the left one", "command: touch a", "so far: ", "(then: cancel)", "./errand answer "):
        assert text in listed.stdout
    assert len(json.loads((await cli(people, *mine, "--json")).stdout)["items"]) == 3
    kinds = [one["kind"] for one in json.loads((await cli(people, *mine, "--json")).stdout)["items"]]
    typed = {"clarification": "2\n", "tool_approval": "n\ntoo late\n"}
    done = await cli(people, *mine, "--answer", input="".join(typed[kind] for kind in kinds))
    assert done.exit_code == 0, done.output
    await people.wait(task_id)
    said = await output(people, task_id)
    assert "the right one" in said and said.count("too late") == 2
    assert "nothing is waiting" in (await cli(people, *mine)).stderr


async def test_answer_and_approve_commands_settle_requests(people: Stack) -> None:
    task_id = await people.submit(
        steps([ask("Port?", answer_schema={"type": "integer"})], [plan("burn"), bash("touch a")]),
        "careful",
        config={"approval_required": True},
    )
    [request] = await waiting(people, task_id)
    wrong = await cli(people, "answer", task_id, request["id"], "eighty")
    assert wrong.exit_code != 0 and "/input" in wrong.stderr
    assert (await cli(people, "answer", task_id, request["id"], "80")).exit_code == 0
    for _ in range(100):
        [second] = await waiting(people, task_id)
        if second["kind"] == "plan_approval":
            break
    done = await cli(people, "approve", task_id, "--plan", "look", "--plan", "tidy", "--json")
    assert json.loads(done.stdout)["response_to"] == second["id"]
    assert (await people.wait(task_id))["reason"] == "goal_reached"
