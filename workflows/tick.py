"""Tick: one due time of one schedule. It is a separate workflow, so that no tick waits for another."""

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from domain import wire
from domain.schedules import TickCall, TickInput, TickOutcome
from workflows import activity_calls
from workflows.ui import TENANT

SCHEDULED_FOR = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")


@workflow.defn(name=wire.TICK)
class Tick:
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
