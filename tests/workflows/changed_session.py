"""A Session as a careless change would leave it: the same name, one timer more at its beginning."""

import asyncio

from temporalio import workflow

from domain.session import SessionInput, SessionResult
from workflows.session import Session


@workflow.defn(name="Session")
class ChangedSession(Session):
    @workflow.init
    def __init__(self, start: SessionInput) -> None:
        super().__init__(start)

    @workflow.run
    async def run(self, start: SessionInput) -> SessionResult:
        await asyncio.sleep(1)
        return await super().run(start)
