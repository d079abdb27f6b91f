"""NotificationDelivery: sends one notice to one subscription, retrying for days if necessary. Each has its own
workflow, so that no delivery waits for another."""

from datetime import timedelta

from temporalio import workflow

from domain import wire
from domain.notification import DeliveryAttempt, DeliveryInput, DeliveryOutcome, DeliveryStatus, pauses
from workflows import activity_calls
from workflows.ui import TENANT


@workflow.defn(name=wire.NOTIFICATION_DELIVERY)
class NotificationDelivery:
    def __init__(self) -> None:
        self._now = False

    @workflow.run
    async def run(self, start: DeliveryInput) -> DeliveryOutcome:
        workflow.upsert_search_attributes([TENANT.value_set(start.tenant)])
        for pause in [*pauses(start.span_s), None]:
            self._now = False  # the first attempt also answers the signal sent with the start
            attempt = DeliveryAttempt(tenant=start.tenant, id=start.id, pause_s=pause)
            outcome = await activity_calls.deliver(attempt)
            if outcome.status is not DeliveryStatus.PENDING or pause is None:
                break
            await self._wait(outcome)
        workflow.set_current_details(f"**{outcome.status}** {outcome.note}")
        return outcome

    @workflow.signal(name=wire.RESEND, description="Try again at once.")
    def resend(self) -> None:
        self._now = True

    async def _wait(self, outcome: DeliveryOutcome) -> None:
        wait = timedelta(seconds=outcome.wait_s)
        workflow.set_current_details(f"**{outcome.status}** {outcome.note} Tried again in {wait}.")
        try:
            await workflow.wait_condition(lambda: self._now, timeout=wait, timeout_summary="until the next attempt")
        except TimeoutError:
            return
