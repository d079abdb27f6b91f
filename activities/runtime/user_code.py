"""Run a user's code so that it can neither end the worker nor be waited for without limit."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")
GRACE_SECONDS = 2.0  # for the clean-up of code that was cancelled


class UserCodeError(Exception):
    """The code tried to end the process, or cancelled itself."""


async def contained(code: Awaitable[T]) -> T:
    """What the code returns. `sys.exit()` and the like become ordinary errors: otherwise they would end the worker, and
    with the retry the next one."""
    try:
        return await code
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise UserCodeError(f"The code raised {type(error).__name__}.") from error


async def within(seconds: float, code: Awaitable[T]) -> T:
    """What the code returns, or TimeoutError. Code that swallows its cancellation is abandoned, not waited for."""
    task = asyncio.ensure_future(contained(code))
    try:
        await asyncio.wait({task}, timeout=max(seconds, 0))
        if task.done():
            if task.cancelled():
                raise UserCodeError("The code cancelled itself.")
            return task.result()
        raise TimeoutError
    finally:
        if task.cancel():  # false if it has ended
            await asyncio.wait({task}, timeout=GRACE_SECONDS)
