"""The address of a conversation and the present settings of its agent."""

from errand import models

from api.http import lookup
from api.http.auth import Call
from domain.conversations.address import AddressKind
from store import addresses, channels, missions, resets, sessions
from store.conversations import ConversationRow

PARTS = {AddressKind.CHANNEL: ("connector", "channel_id", "user_id")}  # all other kinds have an id


async def descriptor(call: Call, conversation_id: str) -> models.Descriptor:
    address = await addresses.of_conversation(call.pool, call.tenant, conversation_id)
    if address is None:
        return models.Descriptor(type="task", identity={"id": conversation_id})
    if address.kind is AddressKind.SCHEDULE:
        mission = await missions.of_conversation(call.pool, call.tenant, conversation_id)
        if mission is not None:
            return models.Descriptor(type="mission", identity={"id": mission.id})
    names = PARTS.get(address.kind, ("id",))
    return models.Descriptor(type=address.kind, identity=dict(zip(names, address.parts, strict=False)))


async def agent_state(call: Call, found: ConversationRow) -> models.AgentState:
    latest = await sessions.newest_of_thread(call.pool, call.tenant, found.id)
    latest = latest or await lookup.session_of(call, found.id)
    channel = await channels.of_conversation(call.pool, call.tenant, found.id)
    routing: dict[str, str | None] = dict(channel.model_dump()) if channel else {}
    if channel is not None:
        routing["thread"] = latest.task.channel.thread if latest.task.channel else None
    marked = await resets.markers(call.pool, call.tenant, found.id)
    return models.AgentState(
        agent=latest.agent,
        agent_version=latest.agent_version,
        models=latest.models,
        permissions=[[models.AgentRule.model_validate(rule) for rule in layer] for layer in latest.rules],
        routing=routing,
        generation=found.generation,
        markers=[
            models.HistoryMarker(kind="start", at=found.created_at),
            *(models.HistoryMarker(kind="reset", at=one.at, by=one.by) for one in marked),
        ],
        created_at=found.created_at,
        updated_at=found.updated_at,
    )
