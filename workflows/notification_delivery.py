"""NotificationDelivery: sends what waits in one lane, one after the other, and retries each for days if necessary.

The replies to an address share a lane, so that none overtakes another. Every notice has its own, so it waits for none.
"""

from datetime import timedelta

from temporalio import workflow

from domain import wire
from domain.notifications import DeliveryAttempt, DeliveryInput, DeliveryOutcome
from workflows import activity_calls
from workflows.ui import TENANT


@workflow.defn(name=wire.NOTIFICATION_DELIVERY)
class NotificationDelivery:
    def __init__(self) -> None:
        self._now = False

    @workflow.run
    async def run(self, start: DeliveryInput) -> DeliveryOutcome:
        workflow.upsert_search_attributes([TENANT.value_set(start.tenant)])
        asked = start.asked
        while True:
            self._now = False  # this attempt answers all signals so far, also the one sent with the start
            outcome = await activity_calls.deliver(
                DeliveryAttempt(
                    tenant=start.tenant, lane=start.lane, span_s=start.span_s, now=workflow.now(), asked=asked
                )
            )
            if outcome.wait_s is None and not self._now:  # a signal says that there is more by now
                break
            if outcome.wait_s:
                await self._wait(outcome, outcome.wait_s)
            asked = outcome.asked and self._now
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(start.model_copy(update={"asked": asked}))
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
