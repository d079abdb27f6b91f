"""Conversations and sessions in the Temporal Web UI: the mailbox query, and details with links."""

from urllib.parse import quote

from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1 import WorkflowMetadata

from tests.behaviour.conversations.talk import Gate, Talk, async_task, chain
from tests.support.stack import Stack, eventually


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
