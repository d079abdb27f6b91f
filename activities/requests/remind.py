"""remind_request: shows an unanswered request again, or escalates it."""

from temporalio import activity

from activities.attempt import with_heartbeats
from domain.conversations.requests import Nothing
from domain.events import EventRow, InputEscalated, InputReminder, InputRequired
from domain.sessions.input_request import RemindRequest, RequestStatus
from store import events, input_requests, sessions
from store.database import Pool


class Reminders:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @activity.defn(name="remind_request")
    @with_heartbeats
    async def remind_request(self, remind: RemindRequest) -> Nothing:
        ref = remind.ref
        request = await input_requests.get(self._pool, ref.tenant, remind.id)
        session = await sessions.get(self._pool, ref.tenant, ref.session_id)
        if request is None or session is None or request.status is not RequestStatus.OPEN:
            return Nothing()
        shown = {name: getattr(request, name) for name in ("kind", "question", "deadline")}
        event: InputRequired = InputReminder(request_id=request.id, **shown)
        if remind.escalate and (to := session.task.config.escalates_to(request.kind)) is not None:
            event = InputEscalated(request_id=request.id, to=to, **shown)
        # A repeated attempt uses the same batch name, so nothing is emitted twice.
        await events.append(self._pool, f"{request.id}/{event.type}", [EventRow.of(ref, event)], again=True)
        return Nothing()
