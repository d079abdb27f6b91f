"""A user's code cannot end the worker, and the worker does not wait for it without limit."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from activities import user_code
from activities.user_code import UserCodeError, at_home, contain_errors, run_apart, run_within


async def leaves() -> None:
    raise SystemExit(3)


async def is_interrupted() -> None:
    raise KeyboardInterrupt


async def cancels_itself() -> None:
    raise asyncio.CancelledError


async def answers() -> str:
    return "done"


Code = Callable[[], Coroutine[Any, Any, Any]]


@pytest.mark.parametrize("code", [leaves, is_interrupted, cancels_itself])
def test_exit_of_the_process_is_an_ordinary_error(code: Code) -> None:
    async def run() -> None:
        for running in (code(), run_apart(code)):
            with pytest.raises(UserCodeError):
                await run_within(5, running)
        if code is not cancels_itself:
            with pytest.raises(UserCodeError):
                await asyncio.wait_for(contain_errors(code()), 5)

    asyncio.run(run())


def test_code_that_ignores_its_cancellation_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_code, "GRACE_SECONDS", 0.01)

    async def run() -> None:
        began, end = asyncio.Event(), asyncio.Event()
        asyncio.get_running_loop().call_later(20, end.set)  # if it were waited for

        async def stays() -> None:
            began.set()
            while not end.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await end.wait()

        with pytest.raises(TimeoutError):
            await run_within(0.01, stays())
        began.clear()
        outer = asyncio.create_task(run_within(60, stays()))
        await began.wait()
        outer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await outer
        assert await run_within(5, answers()) == "done"
        assert not end.is_set()
        end.set()  # so that the test's loop can close

    asyncio.run(run())


def blocks(until: threading.Event) -> Code:
    async def code() -> str:
        return "done" if until.wait(20) else "nobody let it end"

    return code


def test_cancelled_code_cleans_up_and_code_that_ignores_it_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_code, "GRACE_SECONDS", 20)
    cleaned: list[str] = []

    async def tidy() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append("done")

    async def run() -> None:
        with pytest.raises(TimeoutError):
            await run_within(0.05, run_apart(tidy))
        assert cleaned == ["done"]
        monkeypatch.setattr(user_code, "GRACE_SECONDS", 0.1)
        end = threading.Event()
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await run_within(0.05, run_apart(blocks(end)))
        assert time.monotonic() - began < 15
        monkeypatch.setattr(user_code, "MOST_STUCK", 1)
        monkeypatch.setattr(user_code, "STUCK_SECONDS", 0)
        with pytest.raises(UserCodeError, match="1 earlier calls on this worker never ended"):
            await run_apart(answers)
        end.set()
        while user_code._stuck():  # noqa: ASYNC110 - the thread ends in its own time
            await asyncio.sleep(0.01)
        assert await run_apart(answers) == "done"

    asyncio.run(run())


def test_cancelled_call_in_the_callers_loop_has_ended_before_the_code_does(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    class Used:
        async def work(self, seconds: float) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(seconds)  # as the sandbox does, until all processes have ended
                happened.append("work ended")

    async def code(used: Used, seconds: float) -> None:
        try:
            await used.work(seconds)
        finally:
            happened.append("code ended")

    async def run() -> None:
        with pytest.raises(TimeoutError):
            await run_within(0.1, run_apart(code, at_home(Used()), 0.2))
        assert happened == ["work ended", "code ended"]
        happened.clear()
        monkeypatch.setattr(user_code, "HOME_SECONDS", 0.05)
        with pytest.raises(TimeoutError):
            await run_within(0.1, run_apart(code, at_home(Used()), 0.4))
        assert happened == ["code ended"]  # it is not waited for without limit
        await asyncio.sleep(0.5)
        assert happened == ["code ended", "work ended"]

    asyncio.run(run())
