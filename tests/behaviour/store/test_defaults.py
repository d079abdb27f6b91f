"""A default has one source: a column that every INSERT fills has no default in the schema."""

import re

from settings import ROOT
from store.database import Pool

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
