"""A model that the store dumps has exactly the fields that its SQL function reads."""

import re

import pytest
from pydantic import BaseModel

from domain.events import EventRow
from domain.notification import AttemptRecord
from domain.sessions.request_writes import (
    AcceptanceRecord,
    NewRequest,
    RequestAnswer,
    RequestOpening,
    RequestSettlement,
)
from domain.sessions.session_writes import Acceptance, NewBudget, NewMessage, SessionEnding
from domain.sessions.step_writes import BudgetUse, NewNode, OnceEvent, RetryNote, StepBegin, StepCommit
from domain.sessions.tool_writes import CheckBegin, CheckEnd, NewFile, ToolClaim, ToolCommit
from settings import ROOT
from store.new_sessions import Accepted

FUNCTIONS = ROOT / "store" / "functions"


def source(function: str) -> str:
    return (FUNCTIONS / f"{function}.sql").read_text()


def keys_of(function: str, argument: str = "p") -> set[str]:
    """What a function reads of its argument, by key or as a field of the record that it populates with all of it."""
    text = source(function)
    keys = set(re.findall(rf"\b{argument} ->>? '(\w+)'", text))
    for record in re.findall(rf"(\w+)\s+\w+ := jsonb_populate_record\(NULL::\w+, (?:nullif\()?{argument}[,)]", text):
        keys |= fields_of(record, text)
    return keys


def fields_of(record: str, text: str) -> set[str]:
    return set(re.findall(rf"\b{record}\.(\w+)", text))


@pytest.mark.parametrize(
    ("model", "function", "argument"),
    [
        (Acceptance, "accept_session", "p"),
        (SessionEnding, "finish_session", "p"),
        (NewBudget, "enter_budget", "p_tree"),
        (RequestOpening, "open_request", "p"),
        (RequestAnswer, "answer_request", "p"),
        (RequestSettlement, "settle_request", "p"),
        (AcceptanceRecord, "record_acceptance", "p"),
        (AttemptRecord, "record_attempt", "p"),
        (StepBegin, "begin_step", "p"),
        (RetryNote, "note_retry", "p"),
        (StepCommit, "commit_step", "p"),
        (OnceEvent, "commit_step", "o"),
        (BudgetUse, "settle_budget", "p_used"),
    ],
)
def test_sql_function_reads_the_fields_of_its_model(model: type[BaseModel], function: str, argument: str) -> None:
    assert keys_of(function, argument) == {*model.model_fields, *model.model_computed_fields}


@pytest.mark.parametrize("function", ["begin_step", "record_attempt", "settle_request"])
def test_sql_function_reads_its_document_as_one_typed_record(function: str) -> None:
    assert not re.search(r"\bp ->", source(function))


def test_sql_has_no_defaults_of_its_own_for_fields_of_a_model() -> None:
    found = []
    for file in FUNCTIONS.glob("*.sql"):
        text = file.read_text()
        records = re.findall(r"(\w+)\s+\w+ := jsonb_populate_record\(", text)
        records += re.findall(r"jsonb_populate_recordset\([^()]+\) (\w+)", text)
        for record in records:
            found += re.findall(rf"coalesce\({record}\.(\w+), (?:'|\d|now\(|true|false)", text)
    assert found == ["cost_usd"]  # null means that the price is not known


@pytest.mark.parametrize(
    ("model", "function", "record"),
    [
        (NewRequest, "open_request", "r"),
        (NewFile, "commit_tool", "f"),
        (NewNode, "commit_step", "node"),
        (NewMessage, "record_acceptance", "m"),
    ],
)
def test_sql_function_inserts_the_columns_of_a_record(model: type[BaseModel], function: str, record: str) -> None:
    assert fields_of(record, source(function)) | {"session_id"} == {*model.model_fields, "session_id"}


# functions that are called with the whole document of another one
EFFECTS = ("begin_effect", "end_effect")


@pytest.mark.parametrize(
    ("model", "function", "helpers"),
    [
        (ToolClaim, "claim_tool", EFFECTS),
        (ToolCommit, "commit_tool", EFFECTS),
        (CheckBegin, "begin_check", EFFECTS),
        (CheckEnd, "end_check", EFFECTS),
    ],
)
def test_sql_function_and_its_helpers_read_the_fields_of_their_model(
    model: type[BaseModel], function: str, helpers: tuple[str, ...]
) -> None:
    read = keys_of(function)
    assert read <= set(model.model_fields)
    assert set(model.model_fields) <= read.union(*map(keys_of, helpers))


def test_helpers_read_only_fields_that_a_model_has() -> None:
    fields = {name for model in (ToolClaim, ToolCommit, CheckBegin, CheckEnd) for name in model.model_fields}
    assert set().union(*map(keys_of, EFFECTS)) <= fields


def test_accept_session_returns_the_fields_of_accepted() -> None:
    text = source("accept_session")
    built = re.findall(r"jsonb_build_object\('(\w+)'", text) + re.findall(r"'\{\"(\w+)\": true\}'", text)
    assert set(built) - {"status"} == set(Accepted.model_fields)


def test_event_rows_have_the_fields_of_their_model() -> None:
    text = (ROOT / "store" / "migrations" / "0032_event_rows.sql").read_text()
    [columns] = re.findall(r"CREATE TYPE event_row AS \(([^)]*)\)", text)
    [alias] = re.findall(r"unnest\(p_rows\) WITH ORDINALITY AS e\(([^)]*), n\)", source("append_session_events"))
    names = [column.split()[0] for column in columns.split(",")]
    assert names == alias.split(", ")
    assert set(names) == set(EventRow.model_fields)
