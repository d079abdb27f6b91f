"""The sessions table and the model of its rows have the same columns, so that SQL needs no defaults."""

from store.database import Pool
from store.sessions import SessionRow

NOT_IN_THE_ROW = {"acceptance"}  # read only with the result; null until the first check


async def test_session_row_has_every_column_of_its_table(pool: Pool) -> None:
    columns = await pool.fetch(
        """SELECT column_name AS name, is_nullable = 'NO' AS required FROM information_schema.columns
            WHERE table_schema = 'public' AND table_name = 'sessions'"""
    )
    assert {column["name"] for column in columns} == {*SessionRow.model_fields, *NOT_IN_THE_ROW}
    assert not [column["name"] for column in columns if column["required"] and column["name"] in NOT_IN_THE_ROW]
