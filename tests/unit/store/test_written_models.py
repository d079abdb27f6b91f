"""A model that the store dumps has exactly the fields that its SQL function reads."""

import re

import pytest
from pydantic import BaseModel

from domain.sessions.session_writes import Acceptance, NewBudget, SessionEnding
from settings import ROOT
from store.new_sessions import Accepted

FUNCTIONS = ROOT / "store" / "functions"


def source(function: str) -> str:
    return (FUNCTIONS / f"{function}.sql").read_text()


@pytest.mark.parametrize(
    ("model", "function", "argument"),
    [
        (Acceptance, "accept_session", "p"),
        (SessionEnding, "finish_session", "p"),
        (NewBudget, "enter_budget", "p_tree"),
    ],
)
def test_sql_function_reads_the_fields_of_its_model(model: type[BaseModel], function: str, argument: str) -> None:
    read = set(re.findall(rf"\b{argument} ->>? '(\w+)'", source(function)))
    assert read == {*model.model_fields, *model.model_computed_fields}


def test_accept_session_returns_the_fields_of_accepted() -> None:
    text = source("accept_session")
    built = re.findall(r"jsonb_build_object\('(\w+)'", text) + re.findall(r"'\{\"(\w+)\": true\}'", text)
    assert set(built) - {"status"} == set(Accepted.model_fields)
