"""/v1/responses and /v1/models: the requests of OpenAI's clients, over the same functions as /tasks."""

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from api.conversations import control
from api.conversations.control import Stop
from api.faces.responses import feed as feeds
from api.faces.responses.create import create
from api.faces.responses.errors import BadParameter
from api.faces.responses.ids import ResponseId
from api.faces.responses.input_items import ItemPage, input_items
from api.faces.responses.objects import ResponseObject, Shown
from api.faces.responses.request import read_create
from api.faces.responses.view import FACE, find, folded, show
from api.http.auth import Call, Reader, Stopper, Submitter, Viewer
from api.http.idempotency import Key
from api.http.lookup import check_acting
from api.streams.readers import stream_feed
from domain.agents.definition import AgentDefinition, Mode
from domain.errors import NotFound
from domain.faces import FaceRequest
from domain.sessions.session import AgentRef, Reason
from store import agents, face_requests

# These routes are left out of our document, because OpenAI's own describes them.
router = APIRouter(prefix="/v1", tags=["responses"], include_in_schema=False)


class IncludeQuery(BaseModel):
    """Parts that these responses never have may be asked for, in both spellings of a list."""

    model_config = ConfigDict(extra="forbid")

    include: list[str] = Field(default_factory=list)
    listed_include: list[str] = Field(default_factory=list, alias="include[]")


class GetQuery(IncludeQuery):
    stream: bool = False
    starting_after: int | None = Field(default=None, ge=0, le=10**9)
    include_obfuscation: Literal[False, None] = None


class ItemQuery(IncludeQuery):
    after: str | None = Field(default=None, max_length=200)
    limit: int = Field(default=20, ge=1, le=100)
    order: Literal["asc", "desc"] = "desc"


class Deleted(Shown):
    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


class ListedModel(Shown):
    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str

    @classmethod
    def of(cls, ref: AgentRef) -> "ListedModel":
        return cls(id=ref.name, owned_by="errand" if ref.owner == agents.SHIPPED else ref.owner)


class ModelPage(Shown):
    object: Literal["list"] = "list"
    data: list[ListedModel]


@router.post("/responses")
async def create_response(
    request: Request,
    call: Submitter,
    idempotency_key: Key = None,
    retries: Annotated[str, Header(alias="x-stainless-retry-count")] = "0",
) -> Response:
    body = await read_create(request, call)
    if not body.background or body.stream:
        call.services.slots.check(call.tenant, call.caller.created_by)  # before anything is created
    # nine digits at most, because int() raises an error for thousands of them
    response_id = await create(call, body, idempotency_key, repeats=retries.isdecimal() and int(retries[:9]) > 0)
    if not body.background or body.stream:
        feed = await feeds.opened(call, response_id, unstored=True)
        if body.stream:
            return stream_feed(call, feed, feed.last)
        return _json(await feeds.awaited(call, request, feed))
    return _json(await show(call, response_id))


@router.get("/responses/{response_id}")
async def get_response(call: Reader, response_id: str, query: Annotated[GetQuery, Query()]) -> Response:
    wanted = ResponseId.parse(response_id)
    if not query.stream:
        if query.starting_after is not None:
            raise BadParameter("starting_after", "Only a stream has a beginning: send stream=true.")
        return _json(await show(call, wanted))
    feed = await feeds.opened(call, wanted, -1 if query.starting_after is None else query.starting_after)
    return stream_feed(call, feed, feed.last)


@router.post("/responses/{response_id}/cancel")
async def cancel_response(call: Stopper, response_id: str) -> Response:
    """Returns `cancelled` once the stop is recorded. A response that has ended stays as it is."""
    wanted = ResponseId.parse(response_id)
    found = await find(call, wanted)
    assert wanted is not None
    await check_acting(call, found.session)
    before = await show(call, wanted)
    if not before.background:
        raise BadParameter("response_id", "Only a response with background=true can be cancelled.")
    # A response that waits for its caller has ended, but its task has not, and the caller will not answer.
    if wanted.part == len((await folded(call, found)).parts):
        await control.stop_session(call, found.session, Stop(Reason.CALLER_CANCEL))
    return _json(await show(call, wanted))


@router.delete("/responses/{response_id}")
async def delete_response(call: Stopper, response_id: str) -> Response:
    """Hide a response here. The task and its record stay until their retention is over."""
    wanted = ResponseId.parse(response_id)
    found = await find(call, wanted)
    assert wanted is not None
    await check_acting(call, found.session)
    shown = await show(call, wanted)
    if shown.status in ("queued", "in_progress"):
        raise BadParameter("response_id", "The response has not ended: cancel it first.", "response_in_progress")
    row = FaceRequest(face=FACE, public_id=str(wanted), session_id=wanted.session_id, part=wanted.part)
    await face_requests.delete(call.pool, call.tenant, row, found.session.conversation_id, call.caller.created_by)
    return _json(Deleted(id=str(wanted)))


@router.get("/responses/{response_id}/input_items")
async def list_input_items(call: Reader, response_id: str, query: Annotated[ItemQuery, Query()]) -> ItemPage:
    wanted = ResponseId.parse(response_id)
    await show(call, wanted)  # checks that it exists and that its content was not removed
    assert wanted is not None
    found = await find(call, wanted)
    return input_items(found, wanted.part, after=query.after, limit=query.limit, ascending=query.order == "asc")


@router.get("/models")
async def list_models(call: Viewer) -> ModelPage:
    """The agents that a caller can start."""
    return ModelPage(data=[ListedModel.of(ref) for ref, _ in await _startable(call)])


@router.get("/models/{name}")
async def get_model(call: Viewer, name: str) -> ListedModel:
    for ref, _ in await _startable(call):
        if ref.name == name:
            return ListedModel.of(ref)
    raise NotFound("There is no agent by the name of this model.", type="unknown-agent")


async def _startable(call: Call) -> list[tuple[AgentRef, AgentDefinition]]:
    found = await agents.all_current(call.pool, call.tenant)
    return [(ref, one) for ref, one in found if one.mode is not Mode.SUBAGENT]


def _json(shown: ResponseObject | Deleted) -> Response:
    return JSONResponse(shown.model_dump(mode="json"))
