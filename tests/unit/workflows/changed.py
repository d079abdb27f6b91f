"""The workflows after a careless change: the same names, with one more timer at the start."""

import asyncio

from temporalio import workflow

from domain.agents.mcp_discovery import DiscoveredTools, DiscoverTools
from domain.conversations.requests import ConversationInput
from domain.notifications import DeliveryInput, DeliveryOutcome
from domain.schedules import TickInput, TickOutcome
from domain.sessions.session import SessionResult
from domain.sessions.session_state import SessionInput
from workflows.conversation.workflow import Conversation
from workflows.registry import NotificationDelivery, Tick, ToolDiscovery
from workflows.session.workflow import Session


@workflow.defn(name="Session")
class ChangedSession(Session):
    @workflow.init
    def __init__(self, start: SessionInput) -> None:
        super().__init__(start)

    @workflow.run
    async def run(self, start: SessionInput) -> SessionResult:
        await asyncio.sleep(1)
        return await super().run(start)


@workflow.defn(name="Conversation")
class ChangedConversation(Conversation):
    @workflow.init
    def __init__(self, start: ConversationInput) -> None:
        super().__init__(start)

    @workflow.run
    async def run(self, start: ConversationInput) -> None:
        await asyncio.sleep(1)
        await super().run(start)


@workflow.defn(name="NotificationDelivery")
class ChangedDelivery(NotificationDelivery):
    @workflow.run
    async def run(self, start: DeliveryInput) -> DeliveryOutcome:
        await asyncio.sleep(1)
        return await super().run(start)


@workflow.defn(name="Tick")
class ChangedTick(Tick):
    @workflow.run
    async def run(self, start: TickInput) -> TickOutcome:
        await asyncio.sleep(1)
        return await super().run(start)


@workflow.defn(name="ToolDiscovery")
class ChangedDiscovery(ToolDiscovery):
    @workflow.run
    async def run(self, wanted: DiscoverTools) -> DiscoveredTools:
        await asyncio.sleep(1)
        return await super().run(wanted)


CHANGED: list[type] = [
    ChangedSession,
    ChangedConversation,
    ChangedDelivery,
    ChangedTick,
    ChangedDiscovery,
]
