"""The supervisor: it starts parts, restarts those that die while it runs, and stops all in reverse order."""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from deploy.child import Part, answers, kill_group, spawn, tail
from deploy.state import PartInfo, StackError, describe, find_start
from settings import MISCONFIGURED

GIVE_UP_AFTER = 5  # failures of a part that has never been ready
LONGEST_PAUSE = 30.0
READY_WITHIN = 90.0
LOOK_EVERY = 0.1  # more frequent checks of a starting worker would take a fifth of a core
STOP_WITHIN = 6.0


@dataclass(eq=False)
class SupervisedPart:
    """A part and its current process."""

    part: Part
    log: Path
    process: Process | None = None
    started: str | None = None
    restarts: int = 0
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    was_ready: bool = False
    problem: str | None = None  # why it is not ready
    watcher: asyncio.Task[None] | None = None

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
            problem=self.problem,
        )


class Supervisor:
    """Use it in the main thread, because the parent-death signal is sent when the thread that started a child ends."""

    def __init__(self, logs: Path, *, log: Callable[[str], None], changed: Callable[[], None] = lambda: None) -> None:
        self._logs = logs
        self._write_log = log
        self._changed = changed
        self._groups: list[list[SupervisedPart]] = []
        self._one_shots: set[Process] = set()
        self._stopping = False
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def infos(self) -> list[PartInfo]:
        return [supervised.info() for group in self._groups for supervised in group]

    async def start(self, *parts: Part) -> None:
        """Start parts together and wait until all are ready. They stop together, before any part started earlier."""
        group = [SupervisedPart(part, self._log_of(part)) for part in parts]
        self._groups.append(group)
        for supervised in group:
            supervised.watcher = asyncio.create_task(self._watch(supervised))
        for supervised in group:
            try:
                await asyncio.wait_for(supervised.ready.wait(), READY_WITHIN)
            except TimeoutError:
                raise self._error(supervised.part, f"did not become ready in {READY_WITHIN:.0f} s") from None

    async def until(self, work: Coroutine[None, None, None]) -> None:
        """Run `work`. If a part fails permanently in the meantime, cancel the work and raise that error."""
        task = asyncio.create_task(work)
        try:
            await asyncio.wait({task, self._failure}, return_when=asyncio.FIRST_COMPLETED)
            await (task if task.done() else self._failure)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def run(self, part: Part) -> None:
        """Run a part to its end, such as a migration; the error of a failure includes the end of its log."""
        process = await spawn(part, self._log_of(part))
        self._one_shots.add(process)
        try:
            if code := await process.wait():
                raise self._error(part, f"failed ({_ending(code)})")
        finally:
            self._one_shots.discard(process)
            kill_group(process.pid)

    async def stop(self) -> None:
        self._stopping = True
        for group in reversed(self._groups):
            await asyncio.gather(*(self._stop(supervised) for supervised in group))
        if not self._failure.done():
            self._failure.cancel()

    def kill(self) -> None:
        """Kill every part now."""
        self._stopping = True
        for process in [supervised.process for group in self._groups for supervised in group] + list(self._one_shots):
            if process and process.returncode is None:
                kill_group(process.pid)

    async def _watch(self, supervised: SupervisedPart) -> None:
        try:
            failures = 0
            while not self._stopping:
                code, was_ready = None, False
                try:
                    code, was_ready = await self._run_once(supervised)
                    ending = _ending(code)
                except (OSError, StackError) as error:  # a full disk or a corrupt file, which may be fixed while we run
                    if isinstance(error, StackError) and not supervised.was_ready:
                        raise
                    ending = describe(error)
                if self._stopping:
                    return
                if code == MISCONFIGURED and not supervised.was_ready:
                    raise self._error(supervised.part, "cannot run with these settings")
                failures = 1 if was_ready else failures + 1  # once it was ready, earlier failures no longer count
                if failures >= GIVE_UP_AFTER and not supervised.was_ready:
                    raise self._error(supervised.part, f"failed {failures} times in a row, last with {ending}")
                supervised.restarts += 1
                supervised.problem = ending
                self.log(f"{supervised.part.name} ended ({ending}); restarting it")
                self._changed()
                await asyncio.sleep(min(0.1 * 2**failures, LONGEST_PAUSE))
        except Exception as error:
            if not self._failure.done():
                self._failure.set_exception(error)

    async def _run_once(self, supervised: SupervisedPart) -> tuple[int, bool]:
        """Start the part's process and wait for its end; returns its exit code, and whether it had been ready."""
        if supervised.part.prepare:
            await asyncio.to_thread(supervised.part.prepare)
        process = supervised.process = await spawn(supervised.part, supervised.log)
        supervised.started = find_start(process.pid)
        self._changed()
        readiness = asyncio.create_task(self._watch_readiness(supervised, process.pid))
        try:
            return await process.wait(), supervised.ready.is_set()
        finally:
            readiness.cancel()
            supervised.ready.clear()
            kill_group(process.pid)
            self._changed()

    async def _watch_readiness(self, supervised: SupervisedPart, pid: int) -> None:
        part = supervised.part
        while True:
            ready = part.ready is None or await asyncio.to_thread(part.ready, pid)
            if ready and (not part.check or await asyncio.to_thread(answers, part.check)):
                if part.follow_up and not await self._follow_up(supervised, part.follow_up):
                    continue
                supervised.was_ready, supervised.problem = True, None
                supervised.ready.set()
                self._changed()
                return
            await asyncio.sleep(LOOK_EVERY)

    async def _follow_up(self, supervised: SupervisedPart, part: Part) -> bool:
        try:
            await self.run(part)
        except (OSError, StackError) as error:
            supervised.problem = describe(error)
            self.log(supervised.problem)
            self._changed()
            await asyncio.sleep(1.0)
            return False
        return True

    async def _stop(self, supervised: SupervisedPart) -> None:
        process = supervised.process
        if process and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, supervised.part.stop_signal)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), STOP_WITHIN)
            kill_group(process.pid)
            await process.wait()
        if supervised.watcher:
            supervised.watcher.cancel()
            await asyncio.gather(supervised.watcher, return_exceptions=True)
        # the watcher may have started another process while we were stopping the first
        if (latest := supervised.process) and latest.returncode is None:
            kill_group(latest.pid)
            await latest.wait()

    def log(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the log itself may be on the full disk
            self._write_log(text)

    def _log_of(self, part: Part) -> Path:
        return self._logs / f"{part.name}.log"

    def _error(self, part: Part, what: str) -> StackError:
        log = self._log_of(part)
        return StackError(f"{part.name} {what}. Its log, {log}, ends:\n{tail(log)}")


def _ending(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
