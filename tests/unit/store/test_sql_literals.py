"""A text that SQL compares with a column, or writes to it, is a member of the column's enum."""

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest

from domain import events as ev
from domain.channels import NO_MESSAGE
from domain.conversations.mailbox import ConversationStatus, SourceType
from domain.conversations.requests import InboxKind
from domain.conversations.variable_request import VariableRequestStatus
from domain.messages import NodeKind
from domain.missions import MissionStatus
from domain.notifications import ChannelName, DeliveryStatus, SubscriptionStatus
from domain.schedules import RunStatus
from domain.sessions.input_request import OnExpiry, RequestKind, RequestStatus
from domain.sessions.new_session import SessionType, Trigger
from domain.sessions.session import CallState, DeliveryMode, Effect, EffectKind, Purpose, Reason, Scope, Status
from domain.triggers import EventOutcome
from settings import ROOT

COLUMNS: dict[str, dict[str, type[StrEnum]]] = {
    "sessions": {
        "status": Status,
        "reason": Reason,
        "trigger": Trigger,
        "session_type": SessionType,
        "delivery": DeliveryMode,
    },
    "conversations": {"status": ConversationStatus, "delivery": DeliveryMode},
    "tool_calls": {"state": CallState, "effect": Effect, "kind": EffectKind},
    "input_requests": {"status": RequestStatus, "kind": RequestKind, "on_expiry": OnExpiry},
    "subscriptions": {"status": SubscriptionStatus, "channel": ChannelName},
    "deliveries": {"status": DeliveryStatus},
    "attempt_record": {"status": DeliveryStatus},
    "step_begin": {"purpose": Purpose},
    "mailbox": {"source_type": SourceType},
    "schedule_runs": {"status": RunStatus},
    "inbox": {"kind": InboxKind},
    "messages": {"kind": NodeKind},
    "schedules": {"status": MissionStatus},
    "variable_requests": {"status": VariableRequestStatus},
    "external_events": {"outcome": EventOutcome},
}
NAMES = "|".join(sorted({column for columns in COLUMNS.values() for column in columns}))
TABLE = r"(?:FROM|JOIN|UPDATE|INTO|TABLE|ON)\s+(\w+)"
NOT_AN_ALIAS = {"set", "where", "on", "for", "join", "order", "as", "left", "using", "values", "add", "select", "if"}
COMPARED = re.compile(rf"(?:\b(\w+)\.)?\b({NAMES})\s*(?:(?:=|<>|:=|WHEN)\s*('\w+')|(?:NOT )?IN\s*\(([^()]+)\))")
INSERTED = re.compile(r"INSERT INTO (\w+)(?: AS \w+)? \(([^()]+)\)\s+(?:VALUES \(|SELECT )")
SCOPED = re.compile(r"""["']scope["'](?: =|,|:) ["'](\w+)""")
DEFAULT = re.compile(rf"^\s+(?:ADD COLUMN )?({NAMES})\s+text\b.*?DEFAULT '(\w+)'", re.MULTILINE)
EVENT_TYPES = re.compile(r"\b(?:p_type|e\.type|e ->> 'type') (?:=|<>|IN|WHEN) \(?((?:'\w+'(?:,\s*)?)+)")
FILES = [*(ROOT / "store" / "functions").glob("*.sql"), *(ROOT / "store").glob("*.py")]
MIGRATIONS = sorted((ROOT / "store" / "migrations").glob("*.sql"))


def aliases(text: str) -> dict[str, set[str]]:
    """The tables that each alias or variable of a text names."""
    found: dict[str, set[str]] = {}
    for table, alias in re.findall(rf"\b{TABLE}(?:\s+AS)?\s+(\w+)", text):
        if alias.lower() not in NOT_AN_ALIAS:
            found.setdefault(alias, set()).add(table)
    for variable, table in re.findall(r"^\s+(\w+)\s+(\w+)(?:%ROWTYPE|\s+:=|;)", text, re.MULTILINE):
        found.setdefault(variable, set()).add(table)
    for table in COLUMNS:
        found.setdefault(table, set()).add(table)
    return found


def tables_of(text: str, place: int, alias: str | None, column: str) -> set[str]:
    """The tables that a column may belong to: those of its alias, else the table that was named last before it,
    not counting subqueries that have ended."""
    if alias is not None:
        named = aliases(text).get(alias, set())
        return {table for table in named if column in COLUMNS.get(table, {})}
    above, closed = text[:place].rpartition("sql = ")[2], 1  # a module names each statement before its call
    while closed:
        above, closed = re.subn(r"\([^()]*\)", "", above)
    before = [table for table in re.findall(TABLE, above) if column in COLUMNS.get(table, {})]
    return set(before[-1:])


def literals(text: str) -> Iterator[tuple[str, list[type[StrEnum]], str]]:
    for match in COMPARED.finditer(text):
        alias, column, one, several = match.groups()
        enums = [COLUMNS[table][column] for table in tables_of(text, match.start(), alias, column)]
        for value in re.findall(r"'(\w+)'", one or several):
            yield f"{alias or ''}.{column}", enums, value
    for match in INSERTED.finditer(text):
        table, columns = match.groups()
        for column, value in zip(re.split(r",\s*", columns), _expressions(text[match.end() :]), strict=False):
            if column in COLUMNS.get(table, {}) and (given := re.fullmatch(r"'(\w+)'", value)):
                yield f"{table}.{column}", [COLUMNS[table][column]], given[1]
    for match in DEFAULT.finditer(text):
        column, value = match.groups()
        yield column, [COLUMNS[table][column] for table in tables_of(text, match.start(), None, column)], value


def _expressions(text: str) -> list[str]:
    """The inserted expressions: up to the closing parenthesis of VALUES, or to the FROM of a SELECT."""
    depth, found = 0, [""]
    for part in re.findall(r"\bFROM\b|[(),]|'[^']*'|[^(),']+?(?=\bFROM\b|[(),'])", text):
        depth += (part == "(") - (part == ")")
        if depth < 0 or (depth == 0 and part == "FROM"):
            break
        if depth == 0 and part == ",":
            found.append("")
        else:
            found[-1] += part
    return [one.strip() for one in found]


@pytest.mark.parametrize("file", [*FILES, *MIGRATIONS], ids=lambda file: file.name)
def test_text_in_sql_is_a_member_of_the_enum_of_its_column(file: Path) -> None:
    wrong = [
        (column, value, [enum.__name__ for enum in enums])
        for column, enums, value in literals(file.read_text())
        if enums and not any(value in set(enum) for enum in enums)
    ]
    assert wrong == []


def test_the_text_of_most_comparisons_is_checked() -> None:
    """The test must fail if a regular expression no longer matches anything."""
    checked = [value for file in (*FILES, *MIGRATIONS) for _, enums, value in literals(file.read_text()) if enums]
    assert len(checked) > 80


def test_sql_uses_only_existing_scopes() -> None:
    found = {value for file in FILES for value in SCOPED.findall(file.read_text())}
    assert found == {Scope.TREE}


def test_sql_sends_no_reply_that_says_there_is_no_message() -> None:
    text = (ROOT / "store" / "functions" / "send_replies.sql").read_text()
    assert re.findall(r"NOT IN \('', '(\w+)'\)", text) == [NO_MESSAGE]


def test_sql_uses_only_existing_event_types() -> None:
    known = {event.type for event in ev.EVENTS}
    for file in FILES:
        for values in re.findall(EVENT_TYPES, file.read_text()):
            assert set(re.findall(r"'(\w+)'", values)) <= known, file.name
