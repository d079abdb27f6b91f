"""/deliveries: notices sent to subscriptions, their attempts, and sending one again."""

from typing import Annotated

from errand import models
from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field

from api.http.auth import Call, Reader, needs
from api.http.body import accepts_json
from api.http.paging import cursor, position
from api.openapi import problems
from domain.errors import Conflict, NotFound
from domain.ids import is_id
from domain.notifications import Delivery, DeliveryStatus
from domain.task import Id
from store import deliveries
from store.keys import Right

router = APIRouter(tags=["notifications"], dependencies=[Depends(accepts_json)])


class DeliveryQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    status: DeliveryStatus | None = None
    subscription_id: Id | None = None
    task_id: Id | None = None
    cursor: str | None = Field(default=None, max_length=200)
    limit: int = Field(default=50, ge=1, le=200)


def delivery_record(one: Delivery) -> models.Delivery:
    return models.Delivery(**one.model_dump(exclude={"session_id"}), task_id=one.session_id)


@router.get("/deliveries", responses=problems(422), summary="List deliveries, the newest first")
async def list_deliveries(call: Reader, query: Annotated[DeliveryQuery, Query()]) -> models.DeliveryPage:
    filters = query.model_dump(mode="json", exclude={"cursor", "limit"})
    found = await deliveries.find(
        call.pool,
        call.tenant,
        status=query.status,
        subscription_id=query.subscription_id,
        session_id=query.task_id,
        before_id=position(filters, query.cursor),
        limit=query.limit + 1,
    )
    shown = found[: query.limit]
    more = len(found) > query.limit
    return models.DeliveryPage(
        items=[delivery_record(one) for one in shown], next_cursor=cursor(filters, shown[-1].id) if more else None
    )


@router.get("/deliveries/{delivery_id}", responses=problems(404), summary="Show a delivery")
async def show_delivery(call: Reader, delivery_id: str) -> models.Delivery:
    found = await deliveries.get(call.pool, call.tenant, delivery_id) if is_id(delivery_id) else None
    if found is None:
        raise NotFound()
    return delivery_record(found)


@router.post(
    "/deliveries/{delivery_id}/resend",
    status_code=202,
    responses=problems(403, 404, 409),
    summary="Send a delivery again, with the same id",
)
async def resend_delivery(call: Annotated[Call, needs(Right.SUPERVISE)], delivery_id: str) -> models.Delivery:
    """A delivery that waits for its next attempt is sent immediately."""
    if not is_id(delivery_id) or await deliveries.get(call.pool, call.tenant, delivery_id) is None:
        raise NotFound()
    moved = await deliveries.again(call.pool, call.tenant, delivery_id)
    if moved is None:
        why = "Its subscription is disabled or was removed, or the content of its task was removed."
        raise Conflict(why, type="subscription-disabled")
    return delivery_record(moved)
