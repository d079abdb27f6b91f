"""The workflows of this platform: one list for workers and for replays. Those around a single activity are here."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from domain import wire
from domain.agents.mcp_discovery import DiscoveredTools, DiscoverTools
from domain.notifications import DeliveryAttempt, DeliveryInput, DeliveryOutcome
from domain.schedules import TickCall, TickInput, TickOutcome
from workflows import activity_calls
from workflows.conversation.workflow import Conversation
from workflows.session.workflow import Session
from workflows.ui import TENANT

SCHEDULED_FOR = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")


@workflow.defn(name=wire.TICK)
class Tick:
    """One due time of one schedule. It is a separate workflow, so that no tick waits for another."""

    @workflow.run
    async def run(self, start: TickInput) -> TickOutcome:
        workflow.upsert_search_attributes([TENANT.value_set(start.tenant)])
        at = start.at or workflow.info().typed_search_attributes.get(SCHEDULED_FOR) or workflow.now()
        manual = start.at is not None
        call = TickCall(tenant=start.tenant, schedule_id=start.schedule_id, at=at, manual=manual)
        outcome = await activity_calls.tick(call)
        session = f" · session {outcome.session_id}" if outcome.session_id else ""
        workflow.set_current_details(f"**{outcome.status}** {outcome.reason}{session}")
        return outcome


@workflow.defn(name=wire.TOOL_DISCOVERY)
class ToolDiscovery:
    """The API asks a worker for the tool lists of MCP servers. Only workers open outbound connections."""

    @workflow.run
    async def run(self, wanted: DiscoverTools) -> DiscoveredTools:
        workflow.upsert_search_attributes([TENANT.value_set(wanted.tenant)])
        return await activity_calls.discover_tools(wanted)


@workflow.defn(name=wire.NOTIFICATION_DELIVERY)
class NotificationDelivery:
    """Sends what waits in one lane, one after the other, and retries each for days if necessary.

    The replies to an address share a lane, so that none overtakes another. Every notice has its own, so it waits for
    none.
    """

    def __init__(self) -> None:
        self._now = False

    @workflow.run
    async def run(self, start: DeliveryInput) -> DeliveryOutcome:
        workflow.upsert_search_attributes([TENANT.value_set(start.tenant)])
        while True:
            self._now = False  # this attempt answers all signals so far, also the one sent with the start
            outcome = await activity_calls.deliver(DeliveryAttempt(**dict(start), now=workflow.now()))
            if outcome.wait_s is None and not self._now:  # a signal says that there is more by now
                break
            if outcome.wait_s:
                await self._wait(outcome, outcome.wait_s)
            start = start.model_copy(update={"asked": outcome.asked and self._now})
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(start)
        workflow.set_current_details(f"**{outcome.status}** {outcome.note}")
        return outcome

    @workflow.signal(name=wire.RESEND, description="Try at once: there is more to send, or a caller asked for it.")
    def resend(self) -> None:
        self._now = True

    async def _wait(self, outcome: DeliveryOutcome, seconds: float) -> None:
        wait = timedelta(seconds=seconds)
        workflow.set_current_details(f"**{outcome.status}** {outcome.note} Tried again in {wait}.")
        try:
            await workflow.wait_condition(lambda: self._now, timeout=wait, timeout_summary="until the next attempt")
        except TimeoutError:
            return


WORKFLOWS = [Session, Conversation, NotificationDelivery, Tick, ToolDiscovery]
