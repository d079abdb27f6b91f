"""/v1: the Responses API of OpenAI over tasks and conversations: create, get, cancel, delete, input items, models."""

import json
from contextlib import aclosing
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field
from pydantic_core import to_json

from api.conversations import control
from api.conversations.control import Stop
from api.faces.responses.create import create
from api.faces.responses.errors import BadParameter
from api.faces.responses.objects import ResponseObject
from api.faces.responses.project import Fold, ResponseId
from api.faces.responses.request import read_create
from api.faces.responses.view import FACE, FoundResponse, find, find_asked, fold_log, show
from api.http.auth import Call, Reader, Stopper, Submitter, Viewer
from api.http.idempotency import Key
from api.http.lookup import check_acting, check_kept
from api.http.paging import Parameters
from api.streams.feeds import Page
from api.streams.readers import count_stream, stream_feed
from domain.agents.definition import AgentDefinition, Mode
from domain.errors import NotFound, Unavailable
from domain.faces import FaceRequest
from domain.frozen import Frozen
from domain.ids import derive_id
from domain.json_object import JsonObject
from domain.sessions.session import AgentRef, Reason
from store import agents, events, face_requests
from store.database import Pool

# These routes are left out of our document, because OpenAI's own describes them.
router = APIRouter(prefix="/v1", tags=["responses"], include_in_schema=False)
PAGE = 500
FRAMES = 1_000  # more than one event of the log leads to


class IncludeQuery(Parameters):
    """Parts that these responses never have may be asked for, in both spellings of a list."""

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


class Deleted(Frozen):
    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


class ListedModel(Frozen):
    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str

    @classmethod
    def of(cls, ref: AgentRef) -> "ListedModel":
        return cls(id=ref.name, owned_by="errand" if ref.owner == agents.SHIPPED else ref.owner)


class ModelPage(Frozen):
    object: Literal["list"] = "list"
    data: list[ListedModel]


class ItemPage(Frozen):
    object: str = "list"
    data: list[JsonObject]
    first_id: str
    last_id: str
    has_more: bool


class ResponseFeed:
    """The feed of one reader: it folds the log from the beginning and sends the events after `starting_after`."""

    def __init__(self, found: FoundResponse, part: int, starting_after: int = -1) -> None:
        self.tenant, self.id = found.session.tenant, found.session.id
        self._found, self._part, self._shown = found, part, starting_after
        self._fold = Fold(found.facts)
        self._number = -1  # number of the last event of the part
        self._ready = b""
        self.last = 0

    @property
    def ended(self) -> bool:
        return len(self._fold.parts) >= self._part and self._fold.parts[self._part - 1].closed

    def response(self) -> ResponseObject:
        return self._found.show_part(self._part, self._fold.parts[self._part - 1].state)

    async def load(self, pool: Pool) -> None:
        """Fold the existing log before the reader is answered: only then is it known whether its cursor can be
        right."""
        before = -1
        # a page without frames also moves `last`, so that its standstill means the end of the log
        while not self.ended and self.last > before:
            before = self.last
            self._ready += (await self.page(pool, before)).frames
        if len(self._fold.parts) < self._part:
            raise NotFound("There is no such response.")
        if self._shown > self._number:
            raise BadParameter("starting_after", "The response has no event of this number yet.")

    def opening(self, after: int) -> bytes:
        return b": errand\n\n" + self._ready  # a comment, because clients take any field for an event

    async def page(self, pool: Pool, after: int) -> Page:
        """The new frames since the last page. After a page without frames `after` is unchanged, but its events are
        fold_log."""
        if self.ended:
            return Page(b"", after, full=False, ended=True)
        found = await events.of_session(pool, self.tenant, self.id, self.last, PAGE)
        requests = await find_asked(pool, self.tenant, found)
        frames = b""
        for event in found:  # no await from here on, so that a failed read leaves the fold unchanged
            self._fold.feed(event, requests)
            # From the log's number, so that a cursor stays valid when the pieces of texts are deleted.
            self._number = max(self._number, (event.seq - 1) * FRAMES - 1)
            frames += self._frames()
            self.last = event.seq
        return Page(frames, self.last, full=len(found) == PAGE, ended=self.ended)

    def _frames(self) -> bytes:
        frames = b""
        for part in self._fold.parts:
            taken, part.events = part.events, []
            for one in taken if part.number == self._part else []:
                self._number += 1
                if self._number > self._shown:
                    whole = self._found.show_part(self._part, one.state) if one.state else None
                    frames += b"event: %s\ndata: %s\n\n" % (
                        one.type.encode(),
                        to_json(one.wire(self._number, whole)),
                    )
        return frames


@router.post("/responses")
async def create_response(
    request: Request,
    call: Submitter,
    idempotency_key: Key = None,
    retries: Annotated[str, Header(alias="x-stainless-retry-count")] = "0",
) -> Response:
    body, files = await read_create(request, call)
    if not body.background or body.stream:
        call.services.slots.check(call.tenant, call.caller.created_by)  # before anything is created
    # nine digits at most, because int() raises an error for thousands of them
    response_id = await create(call, body, files, idempotency_key, repeats=retries.isdecimal() and int(retries[:9]) > 0)
    if not body.background or body.stream:
        feed = await open_feed(call, response_id, unstored=True)
        if body.stream:
            return stream_feed(call, feed, feed.last)
        return _json(await await_response(call, request, feed))
    return _json(await show(call, response_id))


@router.get("/responses/{response_id}")
async def get_response(call: Reader, response_id: str, query: Annotated[GetQuery, Query()]) -> Response:
    wanted = ResponseId.parse(response_id)
    if not query.stream:
        if query.starting_after is not None:
            raise BadParameter("starting_after", "Only a stream has a beginning: send stream=true.")
        return _json(await show(call, wanted))
    feed = await open_feed(call, wanted, -1 if query.starting_after is None else query.starting_after)
    return stream_feed(call, feed, feed.last)


@router.post("/responses/{response_id}/cancel")
async def cancel_response(call: Stopper, response_id: str) -> Response:
    """Returns `cancelled` once the stop is recorded. A response that has ended stays as it is."""
    wanted = ResponseId.parse(response_id)
    found = await find(call, wanted)
    await check_acting(call, found.session)
    before = await show(call, wanted)
    if not before.background:
        raise BadParameter("response_id", "Only a response with background=true can be cancelled.")
    # A response that waits for its caller has ended, but its task has not, and the caller will not answer.
    if wanted.part == len((await fold_log(call, found)).parts):
        await control.stop_session(call, found.session, Stop(Reason.CALLER_CANCEL))
    return _json(await show(call, wanted))


@router.delete("/responses/{response_id}")
async def delete_response(call: Stopper, response_id: str) -> Response:
    """Hide a response here. The task and its record stay until their retention is over."""
    wanted = ResponseId.parse(response_id)
    found = await find(call, wanted)
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
    found = await agents.list_current(call.pool, call.tenant)
    return [(ref, one) for ref, one in found if one.mode is not Mode.SUBAGENT]


def _json(shown: ResponseObject | Deleted) -> Response:
    return JSONResponse(shown.model_dump(mode="json"))


# The items of a response's input.


def input_items(found: FoundResponse, part: int, *, after: str | None, limit: int, ascending: bool) -> ItemPage:
    listed = [_item(found.session.id, part, place, item) for place, item in enumerate(_read_input(found, part))]
    if not ascending:
        listed.reverse()
    begin = 0
    if after is not None:
        places = [place for place, item in enumerate(listed) if item["id"] == after]
        if not places:
            raise BadParameter("after", "The response has no input item of this id.")
        begin = places[0] + 1
    page = listed[begin : begin + limit]
    first, last = (page[0]["id"], page[-1]["id"]) if page else ("", "")
    return ItemPage(data=page, first_id=first, last_id=last, has_more=len(listed) > begin + limit)


def _read_input(found: FoundResponse, part: int) -> list[JsonObject]:
    row = found.rows.get(part)
    given: str | list[JsonObject] = found.request(part).input
    if row is None or row.request == "{}":  # another face started it or sent the answers
        own = found.session.task.input if part == 1 else None
        given = own if isinstance(own, str) else json.dumps(own) if own is not None else []
    return given if isinstance(given, list) else [{"type": "message", "role": "user", "content": given}]


def _item(session_id: str, part: int, place: int, item: JsonObject) -> JsonObject:
    """An item in the form that clients expect: with an id, a type, and content in parts."""
    known = {"type": "message" if "role" in item else None, **item}
    prefix = {"message": "msg", "function_call_output": "fco"}.get(str(known["type"]), "in")
    # derived and not random, because `after` of the next page names it
    known.setdefault("id", f"{prefix}_{derive_id(session_id, 'input', part, place)}")
    known.setdefault("status", "completed")
    content = known.get("content")
    if isinstance(content, str):
        text: JsonObject = {"type": "input_text", "text": content}
        if known.get("role") == "assistant":
            text = {"type": "output_text", "text": content, "annotations": []}
        known["content"] = [text]
    return known


# A response as a stream of its events, or as the whole once it has ended.


async def open_feed(
    call: Call, response_id: ResponseId, starting_after: int = -1, *, unstored: bool = False
) -> ResponseFeed:
    found = await find(call, response_id, unstored=unstored)
    check_kept(found.session)
    feed = ResponseFeed(found, response_id.part, starting_after)
    await feed.load(call.pool)
    return feed


async def await_response(call: Call, request: Request, feed: ResponseFeed) -> ResponseObject:
    """The response once it has ended. If its client disconnects, the wait ends, but the task continues."""
    async with aclosing(count_stream(call, feed, feed.last)) as chunks:
        async for _ in chunks:
            if feed.ended or await request.is_disconnected():
                break
    if not feed.ended:
        raise Unavailable("This process is about to stop; ask again for the same response.")
    return feed.response()
