"""Finds the response that a request names, folds its log, and shows it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.faces.responses.objects import ConversationId, ResponseObject, ResponseState
from api.faces.responses.project import Fold, ResponseId, SessionFacts
from api.faces.responses.request import CreateResponse, FunctionChoice, function_tools
from api.http import lookup
from api.http.auth import Call
from domain.errors import NotFound
from domain.events import Recorded
from domain.faces import StoredFaceRequest
from domain.sessions.input_request import InputRequest
from store import events, face_requests, input_requests
from store.database import Pool
from store.sessions import SessionRow

FACE = "responses"
PAGE = 1_000


@dataclass(frozen=True)
class FoundResponse:
    """A session, and the requests of this face that led to its parts."""

    session: SessionRow
    rows: Mapping[int, StoredFaceRequest]

    def request(self, part: int) -> CreateResponse:
        """The original request; for a task of another face, as its session describes it."""
        row = self.rows.get(part)
        # "{}" is written by a deletion or by another face, and has no request in it
        if row is not None and row.request != "{}":
            return CreateResponse.model_validate_json(row.request)
        terms = self.session.task_terms
        return CreateResponse(
            model=self.session.agent,
            input="",
            background=True,
            instructions=terms.instructions if terms and part == 1 else None,
        )

    @property
    def stored(self) -> bool:
        return self.request(1).store is not False

    @property
    def facts(self) -> SessionFacts:
        first = self.rows.get(1)
        return SessionFacts.of(self.session.id, self.session.external_tools, first.request if first else None)

    def show_part(self, part: int, state: ResponseState) -> ResponseObject:
        asked, session = self.request(part), self.session
        before = asked.previous_response_id if part == 1 else str(ResponseId(session.id, part - 1))
        schema = session.task_terms.output_schema if session.task_terms else None
        form = asked.text.format if asked.text else None
        name, choice = (form.name if form else None) or "answer", asked.tool_choice
        shown = {"type": "json_schema", "name": name, "schema": schema, "strict": True}
        return ResponseObject(
            **dict(state),
            id=str(ResponseId(session.id, part)),
            model=session.agent,
            background=bool(asked.background),
            instructions=asked.instructions,
            metadata=asked.metadata or {},
            previous_response_id=before,
            conversation=ConversationId(id=f"conv_{session.conversation_id}"),
            tools=function_tools(session.external_tools),
            text={"format": shown if schema is not None else {"type": "text"}},
            max_output_tokens=asked.max_output_tokens,
            max_tool_calls=session.limits.tool_calls,
            reasoning={"effort": asked.reasoning.effort if asked.reasoning else None, "summary": "auto"},
            tool_choice=choice.model_dump() if isinstance(choice, FunctionChoice) else choice or "auto",
            parallel_tool_calls=asked.parallel_tool_calls is not False,
            store=self.stored,
            temperature=1.0 if asked.temperature is None else asked.temperature,
            top_p=1.0 if asked.top_p is None else asked.top_p,
        )


async def find(call: Call, response_id: ResponseId, *, unstored: bool = False) -> FoundResponse:
    """The response; unknown, foreign and deleted ids get the same refusal. `unstored`: also one with
    `store: false`, which nobody can name afterwards."""
    session = await lookup.session_of(call, response_id.session_id)
    rows = await face_requests.of_session(call.pool, call.tenant, FACE, session.id)
    row = rows.get(response_id.part)
    if row is not None and row.deleted_at is not None:
        raise NotFound("There is no such response.")
    found = FoundResponse(session, rows)
    if not (unstored or found.stored):
        raise NotFound("There is no such response.")
    return found


async def fold_log(call: Call, found: FoundResponse) -> Fold:
    """The whole log up to now, without deltas, which the objects do not need."""
    lookup.check_kept(found.session)
    fold, after = Fold(found.facts), 0
    # in pages, because a log has no bound and each page is dropped after it was folded
    while page := await events.without_deltas(call.pool, call.tenant, found.session.id, PAGE, after):
        requests = await find_asked(call.pool, call.tenant, page)
        for event in page:
            fold.feed(event, requests)
        after = page[-1].seq
    return fold


async def find_asked(pool: Pool, tenant: str, page: Sequence[Recorded]) -> dict[str, InputRequest]:
    """The input requests that these events name; their content never changes."""
    ids = [event.data["request_id"] for event in page if event.type == "input_required"]
    return await input_requests.by_ids(pool, tenant, ids) if ids else {}


async def show(call: Call, response_id: ResponseId) -> ResponseObject:
    found = await find(call, response_id)
    fold = await fold_log(call, found)
    if response_id.part > len(fold.parts):
        raise NotFound("There is no such response.")
    return found.show_part(response_id.part, fold.parts[response_id.part - 1].state)
