"""Run a user's code so that it can neither stall nor end the worker, and is not waited for without limit."""

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import logging
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, ParamSpec, TypeVar, cast

from domain.redaction import Redactor

T = TypeVar("T")
P = ParamSpec("P")
GRACE_SECONDS = 2.0  # for the clean-up of code that was cancelled
HOME_SECONDS = 6.0  # for the end of a cancelled call in the worker's loop: the sandbox takes up to five
MOST_STUCK = 32  # threads that should have ended: Python cannot end them, only a restart can
STUCK_SECONDS = 30.0

log = logging.getLogger("errand.worker")
# Threads whose code was cancelled or has returned, since when. One can hang after that too, while its loop is closed.
_ending: dict[threading.Thread, float] = {}


class UserCodeError(Exception):
    """The code tried to end the process, cancelled itself, or was not run because too much of it never ends."""


async def contain_errors(code: Awaitable[T]) -> T:
    """What the code returns. `sys.exit()` and the like become ordinary errors: otherwise they would end the worker, and
    with the retry the next one."""
    try:
        return await code
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise UserCodeError(f"The code raised {type(error).__name__}.") from error


async def run_within(seconds: float, code: Awaitable[T], *, grace: float | None = None) -> T:
    """What the code returns, or TimeoutError. Code that swallows its cancellation is abandoned after the grace."""
    task = asyncio.ensure_future(contain_errors(code))
    try:
        try:
            await asyncio.wait({task}, timeout=max(seconds, 0))
        except asyncio.CancelledError:
            if not task.done():
                raise
            # it ended just before the cancellation, which may not hide what it did
        if task.done():
            if task.cancelled():
                raise UserCodeError("The code cancelled itself.")
            return task.result()
        raise TimeoutError
    finally:
        if task.cancel():  # false if it has ended
            await asyncio.wait({task}, timeout=GRACE_SECONDS if grace is None else grace)


async def run_apart(function: Callable[..., Awaitable[T]], *args: Any) -> T:
    """What the function returns. It runs in a thread with its own event loop, so that code that blocks stalls
    neither the worker nor other code. It has the caller's context variables."""
    if _stuck() >= MOST_STUCK:
        raise UserCodeError(f"It was not run: {MOST_STUCK} earlier calls on this worker never ended. Restart it.")

    async def call() -> T:
        return await contain_errors(function(*args))

    home, loop = asyncio.get_running_loop(), asyncio.new_event_loop()
    ended: asyncio.Future[T] = home.create_future()
    coroutine = call()
    code = loop.create_task(coroutine)

    def settle() -> None:
        _ending.setdefault(thread, time.monotonic())
        if ended.done():  # its waiter was cancelled twice
            return
        if code.cancelled():
            ended.set_exception(UserCodeError("The code cancelled itself."))
        elif (error := code.exception()) is not None:
            ended.set_exception(error)
        else:
            ended.set_result(code.result())

    def report(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the worker's loop is closed
            home.call_soon_threadsafe(settle)

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(asyncio.wait({code}))
        except (SystemExit, KeyboardInterrupt) as error:  # raised by a task that the code started
            log.error("a task of a user's code raised %s", type(error).__name__)

    code.add_done_callback(report)
    thread = threading.Thread(target=run, name="user code", daemon=True)  # a stuck one does not keep the worker alive
    try:
        thread.start()
    except RuntimeError:  # there are too many
        coroutine.close()
        loop.set_exception_handler(lambda *_: None)  # the task will never run
        loop.close()
        raise
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        if not ended.done():
            _ending[thread] = time.monotonic()
            with contextlib.suppress(RuntimeError):  # it has ended, and its loop is closed
                loop.call_soon_threadsafe(code.cancel)
            await asyncio.wait({ended})  # the caller decides how long
        ended.exception()  # it has been looked at
        raise


def _stuck() -> int:
    for thread in list(_ending):
        if not thread.is_alive():
            del _ending[thread]
    return sum(time.monotonic() - since > STUCK_SECONDS for since in _ending.values())


def at_home(used: T) -> T:
    """The object for code that runs apart: its asynchronous methods run in the present loop, to which the connections
    to the database belong."""
    return cast(T, _AtHome(used, asyncio.get_running_loop()))


class _AtHome:
    def __init__(self, used: object, home: asyncio.AbstractEventLoop) -> None:
        self._used = used
        self._home = home

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._used, name)
        return _send_home(value, self._home) if inspect.iscoroutinefunction(value) else value


def call_at_home(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """The same for one asynchronous function."""
    return _send_home(cast(Callable[P, Coroutine[Any, Any, T]], function), asyncio.get_running_loop())


def _send_home(
    function: Callable[P, Coroutine[Any, Any, T]], home: asyncio.AbstractEventLoop
) -> Callable[P, Awaitable[T]]:
    @functools.wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        ended: concurrent.futures.Future[T] = concurrent.futures.Future()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            tasks.append(home.create_task(function(*args, **kwargs)))
            tasks[0].add_done_callback(finish)

        def finish(task: asyncio.Task[T]) -> None:
            if task.cancelled():
                ended.cancel()
            elif not ended.set_running_or_notify_cancel():
                task.exception()  # nobody waits any more
            elif (error := task.exception()) is not None:
                ended.set_exception(error)
            else:
                ended.set_result(task.result())

        home.call_soon_threadsafe(begin)
        waiting = asyncio.wrap_future(ended)
        try:
            return await asyncio.shield(waiting)
        finally:
            if not waiting.done():  # The caller was cancelled. A command that still ends may write until it has ended.
                with contextlib.suppress(RuntimeError):  # the worker's loop is closed
                    home.call_soon_threadsafe(lambda: tasks[0].cancel())
                await asyncio.wait({waiting}, timeout=HOME_SECONDS)
                waiting.cancel()

    return call


# Logs without secrets: the secret values of running tools and hooks are replaced in every line that is logged.


_active: Counter[Redactor] = Counter()  # redactors of the running tools and hooks of this process


@contextlib.contextmanager
def hide_in_logs(redactor: Redactor) -> Iterator[None]:
    _active[redactor] += 1
    try:
        yield
    finally:
        _active[redactor] -= 1
        if not _active[redactor]:
            del _active[redactor]


class RedactingFormatter(logging.Formatter):
    """Redacts the whole line, including its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        for redactor in list(_active):
            text = redactor.text(text)
        return text
