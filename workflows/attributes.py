"""The search attributes of our workflows: ids and enums only, since no codec hides them."""

from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

TENANT = SearchAttributeKey.for_keyword("TenantId")
AGENT = SearchAttributeKey.for_keyword("AgentId")
CONVERSATION = SearchAttributeKey.for_keyword("ConversationId")
PARENT_SESSION = SearchAttributeKey.for_keyword("ParentSessionId")
STATUS = SearchAttributeKey.for_keyword("SessionStatus")
TRIGGER = SearchAttributeKey.for_keyword("Trigger")

ALL = (TENANT, AGENT, CONVERSATION, PARENT_SESSION, STATUS, TRIGGER)


def of_conversation(tenant: str, conversation_id: str) -> TypedSearchAttributes:
    return TypedSearchAttributes(
        [
            SearchAttributePair(TENANT, tenant),
            SearchAttributePair(CONVERSATION, conversation_id),
            SearchAttributePair(TRIGGER, "api"),
        ]
    )
