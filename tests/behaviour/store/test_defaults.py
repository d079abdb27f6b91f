"""A default has one source: a column that every INSERT fills has no default in the schema."""

import re

from settings import ROOT
from store.database import Pool
from store.sessions import SessionRow

INSERT = re.compile(r"INSERT INTO (\w+)(?: AS \w+)?\s*(?:\(([^()]+)\)|VALUES \((\w+)\.\*\))")
SOURCES = [*(ROOT / "store").glob("*.py"), *(ROOT / "store" / "functions").glob("*.sql")]


async def test_no_column_that_is_always_written_has_a_default(pool: Pool) -> None:
    filled: dict[str, list[set[str] | None]] = {}  # None means a whole row
    for file in SOURCES:
        for table, columns, row in INSERT.findall(file.read_text()):
            filled.setdefault(table, []).append(None if row else set(re.split(r",\s*", columns.strip())))
    rows = await pool.fetch(
        """SELECT table_name, column_name FROM information_schema.columns
            WHERE table_schema = 'public' AND column_default IS NOT NULL"""
    )
    dead = [
        (table, column)
        for table, column in rows
        if table in filled and all(columns is None or column in columns for columns in filled[table])
    ]
    assert dead == []
    assert len(filled) > 30


NOT_IN_THE_ROW = {"acceptance"}  # read only with the result; null until the first check


async def test_session_row_has_every_column_of_its_table(pool: Pool) -> None:
    columns = await pool.fetch(
        """SELECT column_name AS name, is_nullable = 'NO' AS required FROM information_schema.columns
            WHERE table_schema = 'public' AND table_name = 'sessions'"""
    )
    assert {column["name"] for column in columns} == {*SessionRow.model_fields, *NOT_IN_THE_ROW}
    assert not [column["name"] for column in columns if column["required"] and column["name"] in NOT_IN_THE_ROW]
