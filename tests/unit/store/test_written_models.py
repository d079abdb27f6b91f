"""A model that the store dumps has exactly the fields that its SQL function reads."""

import re

import pytest
from errand.models import Rerun
from pydantic import BaseModel

from api.faces.responses.request import CreateResponse
from domain import events as ev
from domain.agents.definition import AgentDefinition
from domain.conversations.subagents import SubagentTerms, Successor
from domain.environments import Tree
from domain.events import EventRow
from domain.faces import FaceRequest
from domain.messages import Node, ReplyBody, ResultsBody, ToolCallBlock
from domain.notifications import AttemptRecord, NewNotice
from domain.sessions.acceptance import AcceptanceRound
from domain.sessions.new_session import (
    SubmittedChannel,
    SubmittedConfig,
    SubmittedContext,
    SubmittedSchedule,
    SubmittedTask,
)
from domain.sessions.session import AgentRef, ModelReply, RecordedStop, SessionRef, Usage
from domain.sessions.writes import (
    Acceptance,
    AcceptanceRecord,
    BudgetUse,
    IdempotencyRecord,
    NewBudget,
    NewFile,
    NewMessage,
    NewNode,
    NewRequest,
    OnceEvent,
    QueuedBegin,
    RequestAnswer,
    RequestOpening,
    RequestSettlement,
    SessionEnding,
    StepBegin,
    StepCommit,
    ToolClaim,
    ToolCommit,
)
from domain.triggers import TriggerRules
from settings import ROOT
from store.sessions import Accepted

FUNCTIONS = ROOT / "store" / "functions"
MIGRATIONS = ROOT / "store" / "migrations"
# each function that takes the document of a model, and the model
DOCUMENTS: dict[str, type[BaseModel]] = {
    "accept_session": Acceptance,
    "answer_request": RequestAnswer,
    "begin_queued": QueuedBegin,
    "begin_step": StepBegin,
    "claim_tool": ToolClaim,
    "commit_step": StepCommit,
    "commit_tool": ToolCommit,
    "enter_budget": NewBudget,
    "finish_session": SessionEnding,
    "open_request": RequestOpening,
    "record_acceptance": AcceptanceRecord,
    "record_attempt": AttemptRecord,
    "settle_request": RequestSettlement,
}
# models inside those documents
PARTS = (BudgetUse, EventRow, NewNotice, OnceEvent, SessionRef)
# documents inside rows, as queries read them
STORED = (
    AcceptanceRound,
    AgentRef,
    RecordedStop,
    Rerun,
    SubagentTerms,
    SubmittedChannel,
    SubmittedConfig,
    SubmittedContext,
    SubmittedSchedule,
    SubmittedTask,
    Successor,
    Usage,
)
# The keys that SQL reads one by one: of the data of events and the bodies of messages, which have many models, and of
# documents of which a query needs one field. Each is a field of the named models.
Fields = dict[str, tuple[type[BaseModel], ...]]
KEYS: dict[str, Fields] = {
    "agents": {"tools": (AgentDefinition,)},
    "conversations": {"input": (SubmittedTask,), "model": (ev.UsageUpdated,), "call": (ev.UsageUpdated,)},
    "emit_events": {"type": (EventRow,)},
    "environments": {"setup": (Tree,), "setup_version": (Tree,)},
    "face_requests": {"background": (CreateResponse,)},
    "finish_session": {"type": (EventRow,)},
    "give_notice": {
        "kind": (ev.InputRequired, ev.InputReminder),
        "output": tuple(ev.ENDED.values()),
        "to": (ev.InputEscalated,),
        "background": (CreateResponse,),
    },
    "resets": {"head": (ev.ContextLost,)},
    "runs": {"immediate": (ReplyBody, ResultsBody), "stop_reason": (ReplyBody,)},
    "send_replies": {"question": (ev.InputRequired,), "options": (ev.InputRequired,), "text": (ev.ContextLost,)},
    "sessions": {"at": (RecordedStop,)},
    "settle_budget": {"budget": (ev.BudgetLow,)},
    "tool_calls": {"model": (ev.UsageUpdated,)},
    "traces": {"origin": (ReplyBody,), "calls": (ModelReply,)},
    "triggers": {"signature": (TriggerRules,)},
    "with_arguments": {
        "arguments": (ToolCallBlock,),
        "type": (ToolCallBlock,),
        "content": (ReplyBody,),
        "data": (EventRow,),
    },
}
# entries of a map of files, and the answer to a plan, which has a schema instead of a model
OTHERS = {"remove_content": {"sha256"}, "runs": {"approved"}}
# lists of documents
LISTS = {"append_events", "emit_events", "give_notice", "send_replies", "with_arguments"}


def source(function: str) -> str:
    return (FUNCTIONS / f"{function}.sql").read_text()


def fields_of(model: type[BaseModel]) -> set[str]:
    return {*model.model_fields, *model.model_computed_fields}


def type_of(model: type[BaseModel]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", model.__name__).lower()


def columns_of(name: str) -> list[str]:
    """The attributes of a SQL type, from the migrations."""
    text = "\n".join(file.read_text() for file in sorted(MIGRATIONS.glob("*.sql")))
    [body] = re.findall(rf"CREATE TYPE {name} AS \(([^()]+)\);", text)
    added = re.findall(rf"ALTER TYPE {name} ADD ATTRIBUTE ([^;]+);", text)
    dropped = re.findall(r"DROP ATTRIBUTE (\w+)", "".join(re.findall(rf"ALTER TYPE {name} (DROP [^;]+);", text)))
    columns = [column.split()[0].strip('"') for column in [*body.split(","), *added]]
    return [column for column in columns if column not in dropped]


def read_of(record: str, text: str) -> set[str]:
    return set(re.findall(rf'\b{record}\."?(\w+)', text))


@pytest.mark.parametrize("model", [*DOCUMENTS.values(), *PARTS, *STORED], ids=type_of)
def test_sql_type_has_the_fields_of_its_model(model: type[BaseModel]) -> None:
    assert set(columns_of(type_of(model))) == fields_of(model)


@pytest.mark.parametrize("function", DOCUMENTS)
def test_sql_function_reads_all_of_its_document_as_one_record(function: str) -> None:
    text, name = source(function), type_of(DOCUMENTS[function])
    [(record, argument)] = re.findall(rf"(\w+)\s+{name} := jsonb_populate_record\(NULL::{name}, (\w+)\);", text)
    assert read_of(record, text) == fields_of(DOCUMENTS[function])
    assert not re.search(rf"\b{argument} (->|#>|\?)", text)


def test_every_function_that_takes_a_document_is_compared_with_its_model() -> None:
    texts = {file.stem: re.sub(r"\bOUT \w+ \w+", "", file.read_text()) for file in FUNCTIONS.glob("*.sql")}
    taking = {name for name, text in texts.items() if re.search(r"FUNCTION \w+\([^)]*\bjsonb\b", text)}
    assert taking == {*DOCUMENTS, *LISTS}


def test_sql_has_no_defaults_of_its_own_for_fields_of_a_model() -> None:
    found = []
    for file in FUNCTIONS.glob("*.sql"):
        text = file.read_text()
        records = re.findall(r"(\w+)\s+\w+ := jsonb_populate_record\(", text)
        records += re.findall(r"jsonb_populate_recordset\([^()]+\) (\w+)", text)
        for record in {*records, "p_used"}:
            found += re.findall(rf"coalesce\({record}\.(\w+), (?:'|\d|now\(|true|false)", text)
        found += re.findall(r"coalesce\(\(?p\w* ->.*", text)
    assert found == ["cost_usd"]  # null means that the price is not known


@pytest.mark.parametrize(
    ("model", "function", "record"),
    [
        (NewRequest, "open_request", "r"),
        (NewFile, "commit_tool", "f"),
        (NewNode, "commit_step", "node"),
        (Node, "finish_session", "node"),
        (NewMessage, "record_acceptance", "m"),
        (NewMessage, "accept_session", "m"),
        (FaceRequest, "accept_session", "f"),
        (IdempotencyRecord, "accept_session", "idem"),
        (OnceEvent, "commit_step", "o"),
        (BudgetUse, "settle_budget", "p_used"),
        (NewNotice, "give_notice", "e"),
    ],
)
def test_sql_function_reads_the_fields_of_a_part(model: type[BaseModel], function: str, record: str) -> None:
    assert read_of(record, source(function)) - {"ordinality"} | {"session_id"} == {*model.model_fields, "session_id"}


def test_accept_session_returns_the_fields_of_accepted() -> None:
    text = source("accept_session")
    built = re.findall(r"jsonb_build_object\('(\w+)'", text) + re.findall(r"'\{\"(\w+)\": true\}'", text)
    assert set(built) - {"status"} == {field.alias or name for name, field in Accepted.model_fields.items()}


def test_every_key_that_sql_reads_is_a_field_of_the_model_of_its_document() -> None:
    for file in [*(ROOT / "store").glob("*.py"), *FUNCTIONS.glob("*.sql")]:
        read = set(re.findall(r"(?:->>?|\?) '(\w+)'", file.read_text()))
        known = KEYS.get(file.stem, {})
        assert read == known.keys() | OTHERS.get(file.stem, set()), file.name
        for key, models in known.items():
            assert all(key in model.model_fields for model in models), (file.name, key)
