"""How a session's workflow appears in Temporal, whoever starts it: its attributes, its words and its place in line."""

from typing import Any

from temporalio.common import Priority, SearchAttributePair, TypedSearchAttributes, WorkflowIDReusePolicy

from domain.sessions.session import SessionInput
from workflows.attributes import AGENT, CONVERSATION, PARENT_SESSION, STATUS, TENANT, TRIGGER
from workflows.ui import static_details


def appearance(session: SessionInput) -> dict[str, Any]:
    ref = session.ref
    attributes = [
        SearchAttributePair(TENANT, ref.tenant),
        SearchAttributePair(AGENT, session.agent.name),
        SearchAttributePair(CONVERSATION, ref.conversation_id),
        SearchAttributePair(STATUS, "working"),
        SearchAttributePair(TRIGGER, session.trigger),
    ]
    if session.parent_session_id:
        attributes.append(SearchAttributePair(PARENT_SESSION, session.parent_session_id))
    return {
        "id_reuse_policy": WorkflowIDReusePolicy.REJECT_DUPLICATE,
        "static_summary": f"{session.agent.name} · {session.title}",
        "static_details": static_details(session),
        "search_attributes": TypedSearchAttributes(attributes),
        "priority": Priority(priority_key=3, fairness_key=ref.tenant[:64]),
    }
