"""Temporal's Web UI shows a session that waits for a person: its status, the question, the rule and the deadline."""

from tests.behaviour.supervision.people import answer, ask, bash, waiting
from tests.support.stack import Stack, eventually, steps


async def status_of(people: Stack, task_id: str) -> str:
    described = await people.session(task_id).describe()
    [status] = described.search_attributes["SessionStatus"]
    return str(status)


async def details_of(people: Stack, task_id: str) -> str:
    metadata = await people.session(task_id).query("__temporal_workflow_metadata")
    return str(metadata.get("currentDetails", "") if isinstance(metadata, dict) else metadata.current_details)


async def test_waiting_session_names_its_question_rule_and_deadline(people: Stack) -> None:
    task_id = await people.submit(steps([ask("Which port?")], [bash("touch a")]), "careful")
    [first] = await waiting(people, task_id)
    await eventually(lambda: _is(people, task_id, "input_required"), what="the status of the first step")
    details = await details_of(people, task_id)
    assert "input_required" in details and "Which port?" in details and " UTC" in details
    await answer(people, task_id, first["id"], "80")

    async def asked_again() -> dict[str, object] | None:
        [request] = await waiting(people, task_id)
        return request if request["id"] != first["id"] else None

    second = await eventually(asked_again, what="the second request")
    await eventually(lambda: _is(people, task_id, "input_required"), what="the status of the second step")
    details = await details_of(people, task_id)
    assert 'ask bash "touch *"' in details and "Which port?" not in details
    await answer(people, task_id, str(second["id"]), {"approved": True})
    await people.wait(task_id)
    await eventually(lambda: _is(people, task_id, "completed"), what="the last status")


async def _is(people: Stack, task_id: str, wanted: str) -> bool:
    return await status_of(people, task_id) == wanted
