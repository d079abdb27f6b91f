"""Conversations and sessions in the Temporal Web UI: the mailbox query, and details with links."""

from urllib.parse import quote

from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1 import WorkflowMetadata

from domain.conversations.requests import PendingOutcome
from domain.sessions.session import Status
from tests.behaviour.conversations.talk import BROKEN, Gate, Talk, async_delegate, async_task, chain, say
from tests.support.stack import Stack, eventually
from workflows.client import WorkflowClient


async def current_details(stack: Stack, workflow_id: str) -> str:
    handle = stack.client.get_workflow_handle(workflow_id)
    metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    return str(metadata.current_details)


async def static_details(stack: Stack, session_id: str) -> str:
    description = await stack.session(session_id).describe()
    payload: Payload = description.raw_description.execution_config.user_metadata.details
    [details] = await stack.client.data_converter.decode([payload], [str])
    return str(details)


def linked(workflow_id: str) -> str:
    return f"](/namespaces/default/workflows/{quote(workflow_id, safe='')})"


async def test_mailbox_query_shows_each_waiting_outcome(team: Stack) -> None:
    text = "Found it. " + "More of it. " * 40
    talk = await Talk.done(
        team, chain([async_delegate("one", say(text), agent="helper"), async_task(BROKEN)], last="Off.")
    )
    mail = await talk.posted(2)
    client = WorkflowClient(team.client, team.settings.task_queue)

    async def both() -> list[PendingOutcome] | None:
        waiting = sorted(await client.mailbox(talk.id) or [], key=lambda one: one.id)
        return waiting if len(waiting) == 2 else None

    outcomes = await eventually(both, what="both were posted")
    found = next(outcome for outcome in outcomes if outcome.name == "one")
    failed = next(outcome for outcome in outcomes if outcome.name != "one")
    assert {outcome.id for outcome in outcomes} == {message.message_id for message in mail}
    assert found.status is Status.COMPLETED and found.preview.startswith("Found it.") and len(found.preview) == 160
    assert found.agent == failed.agent == "helper"
    assert found.title and failed.status is Status.FAILED and failed.preview
    # after its workflow was terminated, the query returns the same from the rows
    await team.client.get_workflow_handle(f"conversation/{talk.id}").terminate()
    await client.reopen("default", talk.id)
    assert await eventually(both, what="both were loaded") == outcomes
    shown = await talk.shown("/mailbox", live=True)
    assert sorted(item["message_id"] for item in shown["items"]) == [outcome.id for outcome in outcomes]


async def test_details_link_a_session_with_its_conversation_parent_and_subagents(team: Stack) -> None:
    gate = Gate()
    talk = await Talk.done(team, chain([async_task(gate.then("Late."))], last="Off."))
    child = await talk.child()
    conversation = f"conversation/{talk.id}"
    assert linked(conversation) in await static_details(team, talk.id)
    assert linked(conversation) in await static_details(team, child.id)
    assert linked(f"session/{talk.id}") in await static_details(team, child.id)
    assert linked(f"session/{child.id}") in await current_details(team, f"session/{talk.id}")
    shown = await current_details(team, conversation)
    assert linked(f"session/{talk.id}") in shown and linked(f"session/{child.id}") in shown
    gate.open()

    async def waiting() -> bool:
        return "outcomes waiting: 1" in await current_details(team, conversation)

    await eventually(waiting, what="the details count the outcome")
