"""A user's code neither ends the worker nor is waited for without limit."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from activities.runtime import user_code
from activities.runtime.user_code import UserCodeError, contained, within


async def leaves() -> None:
    raise SystemExit(3)


async def is_interrupted() -> None:
    raise KeyboardInterrupt


async def cancels_itself() -> None:
    raise asyncio.CancelledError


async def stays() -> None:
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.3)  # it ends in the end, so that the test's loop can close
            return


async def answers() -> str:
    return "done"


Code = Callable[[], Coroutine[Any, Any, Any]]


@pytest.mark.parametrize("code", [leaves, is_interrupted, cancels_itself])
def test_exit_of_the_process_is_an_ordinary_error(code: Code) -> None:
    async def run() -> None:
        with pytest.raises(UserCodeError):
            await within(5, code())
        if code is not cancels_itself:
            with pytest.raises(UserCodeError):
                await asyncio.wait_for(contained(code()), 5)

    asyncio.run(run())


def test_code_that_does_not_let_itself_be_cancelled_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_code, "GRACE_SECONDS", 0.01)

    async def run() -> None:
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            await within(0.01, stays())
        outer = asyncio.create_task(within(60, stays()))
        await asyncio.sleep(0.01)
        outer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await outer
        assert asyncio.get_running_loop().time() - began < 0.3
        assert await within(5, answers()) == "done"
        await asyncio.sleep(0.4)

    asyncio.run(run())
