"""One start of the embedded stack: its parts in order, and the state file that describes them."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from deploy import state
from deploy.app_parts import AppParts, local_url
from deploy.child import Part
from deploy.data_dir import postgres_account
from deploy.plan import StackPlan
from deploy.postgres import API_ROLE, WORKER_ROLE, Postgres, url_of
from deploy.state import StackInfo, describe, started_at, without_password
from deploy.supervisor import Supervisor
from deploy.temporal import CONNECTION, Temporal
from settings import ROOT, Settings

STATE_RETRY_SECONDS = 5.0
ANTHROPIC = "https://api.anthropic.com"
MakeAppParts = Callable[[Settings, dict[str, str], int | None], AppParts]


class Stack:
    def __init__(self, plan: StackPlan, home: Path, *, log: Callable[[str], None], make_parts: MakeAppParts) -> None:
        self._plan = plan
        self._home = home
        self._make_parts = make_parts
        self._write_log = log
        self._connection = CONNECTION if plan.temporal_port else {}
        self._ready = False
        self._unmigrated: Postgres | None = None
        (home / "logs").mkdir(mode=0o700, exist_ok=True)  # others may pass through the folder above
        self.supervisor = Supervisor(home / "logs", log=log, changed=self._write_state)
        self._retry: asyncio.TimerHandle | None = None

    async def stop(self) -> None:
        """Stop all parts. A database that could not be migrated is restored to its former owner."""
        await self.supervisor.stop()
        if self._unmigrated:
            await asyncio.to_thread(self._unmigrated.give_back)

    async def boot(self) -> None:
        """Start PostgreSQL and Temporal concurrently and prepare each; then start the parts that need them."""
        state.write(self.info())  # first: if this is impossible, so is everything else
        try:
            async with asyncio.TaskGroup() as group:
                database = group.create_task(self._start_database())
                group.create_task(self._start_temporal())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        await self.supervisor.start(*database.result().parts)
        self._ready = True
        self._write_state()

    def _write_state(self) -> None:
        """Write the state file. If that fails, as on a full disk, the stack continues and tries again."""
        if self._retry:
            self._retry.cancel()
            self._retry = None
        try:
            state.write(self.info())
        except OSError as error:
            self._log(f"cannot write the state of the stack: {describe(error)}")
            self._retry = asyncio.get_running_loop().call_later(STATE_RETRY_SECONDS, self._write_state)

    def _log(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the log may be on the same disk
            self._write_log(text)

    async def _start_database(self) -> AppParts:
        settings = self._plan.settings
        if self._plan.postgres_port:
            postgres = self._unmigrated = Postgres(self._home, postgres_account())
            await postgres.create(self.supervisor)
            await self.supervisor.start(postgres.part(self._plan.postgres_port))
            port = self._plan.postgres_port
            settings = replace(
                settings,
                database_url=postgres.url(port),
                api_database_url=postgres.role_url(port, API_ROLE),
                worker_database_url=postgres.role_url(port, WORKER_ROLE),
            )
        app = self._make_parts(settings, self._connection, self._plan.offline_port)
        await self.supervisor.run(app.migrate)
        self._unmigrated = None
        return app

    async def _start_temporal(self) -> None:
        plan, temporal = self._plan, Temporal(self._home)
        if not plan.temporal_port or not plan.temporal_ui_port:
            return
        env = self._connection | {"TEMPORAL_ADDRESS": plan.temporal_address, "PYTHONPATH": str(ROOT)}
        # at every start, because the database may have been deleted or replaced by an older one
        prepare = Part(name="temporal-namespace", argv=[sys.executable, "-m", "deploy.temporal"], env=env)
        await self.supervisor.start(temporal.part(plan.temporal_port, prepare), temporal.guard(plan.temporal_ui_port))

    def info(self) -> StackInfo:
        plan, settings = self._plan, self._plan.settings
        api_url = local_url(settings.host, settings.port)
        database = url_of(plan.postgres_port) if plan.postgres_port else settings.database_url or ""
        return StackInfo(
            pid=os.getpid(),
            started=started_at(os.getpid()),
            ready=self._ready,
            api_url=api_url,
            docs_url=f"{api_url}/docs",
            temporal_address=plan.temporal_address,
            temporal_ui_url=f"http://127.0.0.1:{plan.temporal_ui_port}" if plan.temporal_ui_port else None,
            database_url=without_password(database),
            data_dir=self._home,
            offline_model=plan.offline_port is not None,
            model=settings.default_model,
            model_endpoint=without_password(settings.anthropic_base_url or ANTHROPIC),
            cost_limit=settings.default_cost_usd,
            parts=self.supervisor.infos(),
        )
