"""The process of LangGraph's server, with the graph of langgraph_postgres.py and the PostgreSQL saver."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph_api.cli import run_server

HERE = Path(__file__)
DATABASE = Path("langgraph-database").read_text()  # from langgraph_server.py


@asynccontextmanager
async def saver() -> AsyncIterator[AsyncPostgresSaver]:
    async with AsyncPostgresSaver.from_conn_string(DATABASE) as made:
        await made.setup()
        yield made


if __name__ == "__main__":
    sys.path.append(str(HERE.parents[2]))
    run_server(
        port=int(sys.argv[1]),
        graphs={"loop": f"{HERE.with_name('langgraph_postgres.py')}:graph"},
        checkpointer={"path": f"{HERE}:saver"},
        n_jobs_per_worker=10,
    )
