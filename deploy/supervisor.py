"""The supervisor: starts parts, restarts what dies, gives up on what cannot live, stops all in reverse order."""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from deploy.child import Part, answers, kill_group, spawn, tail
from deploy.state import PartInfo, StackError, started_at
from settings import MISCONFIGURED

GIVE_UP_AFTER = 5
READY_WITHIN = 90.0
STOP_WITHIN = 6.0


@dataclass(eq=False)
class SupervisedPart:
    """A part and the process that is it at the moment."""

    part: Part
    log: Path
    process: Process | None = None
    started: str | None = None
    restarts: int = 0
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    keeper: asyncio.Task[None] | None = None

    def info(self) -> PartInfo:
        process = self.process if self.process and self.process.returncode is None else None
        return PartInfo(
            name=self.part.name,
            address=self.part.address,
            pid=process.pid if process else None,
            started=self.started if process else None,
            healthy=self.ready.is_set(),
            restarts=self.restarts,
            log=self.log,
            check=self.part.check,
        )


class Supervisor:
    """Must be used from the main thread: the parent-death signal follows the thread that started the child."""

    def __init__(self, logs: Path, *, log: Callable[[str], None], changed: Callable[[], None] = lambda: None) -> None:
        self._logs = logs
        self._log = log
        self._changed = changed
        self._groups: list[list[SupervisedPart]] = []
        self._once: set[Process] = set()
        self._stopping = False
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def infos(self) -> list[PartInfo]:
        return [kept.info() for group in self._groups for kept in group]

    async def start(self, *parts: Part) -> None:
        """Start these together and wait until all are ready. They are stopped together, before any started earlier."""
        group = [SupervisedPart(part, self._log_of(part)) for part in parts]
        self._groups.append(group)
        for kept in group:
            kept.keeper = asyncio.create_task(self._keep(kept))
        for kept in group:
            try:
                await asyncio.wait_for(kept.ready.wait(), READY_WITHIN)
            except TimeoutError:
                raise self._error(kept.part, f"did not become ready in {READY_WITHIN:.0f} s") from None

    async def until(self, work: Coroutine[None, None, None]) -> None:
        """Do this work, unless a part is given up meanwhile: then the work is dropped and that error raised."""
        task = asyncio.create_task(work)
        try:
            await asyncio.wait({task, self._failure}, return_when=asyncio.FIRST_COMPLETED)
            await (task if task.done() else self._failure)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def run(self, part: Part) -> None:
        """Run a part that ends by itself, such as a migration; a failure shows the end of its log."""
        process = await spawn(part, self._log_of(part))
        self._once.add(process)
        try:
            if code := await process.wait():
                raise self._error(part, f"failed ({_ending(code)})")
        finally:
            self._once.discard(process)
            kill_group(process.pid)

    async def stop(self) -> None:
        self._stopping = True
        for group in reversed(self._groups):
            await asyncio.gather(*(self._stop(kept) for kept in group))
        if not self._failure.done():
            self._failure.cancel()

    def kill(self) -> None:
        """At once, without asking."""
        self._stopping = True
        for process in [kept.process for group in self._groups for kept in group] + list(self._once):
            if process and process.returncode is None:
                kill_group(process.pid)

    async def _keep(self, kept: SupervisedPart) -> None:
        try:
            failures = 0
            while not self._stopping:
                code, was_ready = await self._live(kept)
                if self._stopping:
                    return
                if code == MISCONFIGURED:
                    raise self._error(kept.part, "cannot run with these settings")
                failures = 1 if was_ready else failures + 1  # one that could work has died rather than failed
                if failures >= GIVE_UP_AFTER:
                    raise self._error(kept.part, f"failed {failures} times in a row, lastly with {_ending(code)}")
                kept.restarts += 1
                self._log(f"{kept.part.name} ended ({_ending(code)}); starting it again")
                await asyncio.sleep(0.1 * 2**failures)
        except Exception as error:
            if not self._failure.done():
                self._failure.set_exception(error)

    async def _live(self, kept: SupervisedPart) -> tuple[int, bool]:
        """One life of the part, from its start to its end: how it ended, and whether it was ready before."""
        if kept.part.prepare:
            await asyncio.to_thread(kept.part.prepare)
        process = kept.process = await spawn(kept.part, kept.log)
        kept.started = started_at(process.pid)
        self._changed()
        readiness = asyncio.create_task(self._watch_readiness(kept, process.pid))
        try:
            return await process.wait(), kept.ready.is_set()
        finally:
            readiness.cancel()
            kept.ready.clear()
            kill_group(process.pid)
            self._changed()

    async def _watch_readiness(self, kept: SupervisedPart, pid: int) -> None:
        part = kept.part
        while True:
            ready = part.ready is None or await asyncio.to_thread(part.ready, pid)
            if ready and (not part.check or await asyncio.to_thread(answers, part.check)):
                kept.ready.set()
                self._changed()
                return
            await asyncio.sleep(0.03)

    async def _stop(self, kept: SupervisedPart) -> None:
        process = kept.process
        if process and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, kept.part.stop_signal)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), STOP_WITHIN)
            kill_group(process.pid)
            await process.wait()
        if kept.keeper:
            kept.keeper.cancel()
            await asyncio.gather(kept.keeper, return_exceptions=True)
        if kept.process and kept.process.returncode is None:  # born while we were asking its predecessor to go
            kill_group(kept.process.pid)
            await kept.process.wait()

    def _log_of(self, part: Part) -> Path:
        return self._logs / f"{part.name}.log"

    def _error(self, part: Part, what: str) -> StackError:
        log = self._log_of(part)
        return StackError(f"{part.name} {what}. Its log, {log}, ends:\n{tail(log)}")


def _ending(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
