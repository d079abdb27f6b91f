"""The mark `together`: tests of a module that mostly wait, for a clock or a deadline, run at the same time.

The first of them begins all that were chosen, a few at a time; each then waits for its own. The other tests of the
module run after them, for these may kill what the others need: tests with a fixture of their own, those that are no
coroutines, and those marked `together(False)`.
"""

import asyncio
import functools
import inspect
from pathlib import Path
from typing import Any

import pytest

AT_ONCE = 5


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "together(False): runs at the same time as others of its module, or not")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    groups: dict[Path, Group] = {}
    places: dict[Path, int] = {}
    chosen = set()
    for item in items:
        places.setdefault(item.path, len(places))
        if isinstance(item, pytest.Function) and _may(item):
            groups.setdefault(item.path, Group()).add(item)
            chosen.add(item)
    items.sort(key=lambda item: (places[item.path], item not in chosen))


class Group:
    """The tests of one module that run together."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(AT_ONCE)
        self._waiting: dict[pytest.Function, tuple[Any, set[str], dict[str, Any]]] = {}
        self._running: dict[pytest.Function, asyncio.Task[None]] = {}

    def add(self, item: pytest.Function) -> None:
        test, given = item.obj, _arguments(item)
        shared = set(inspect.signature(test).parameters) - set(given)

        @functools.wraps(test)
        async def play(**fixtures: Any) -> None:
            self._begin({name: value for name, value in fixtures.items() if name in shared})
            await self._running.pop(item)

        self._waiting[item] = (test, shared, given)
        item.obj = play

    def _begin(self, fixtures: dict[str, Any]) -> None:
        """Begin all tests that need no more than these fixtures."""
        for item, (test, shared, given) in list(self._waiting.items()):
            if shared <= set(fixtures):
                del self._waiting[item]
                wanted = {name: fixtures[name] for name in shared}
                self._running[item] = asyncio.create_task(self._play(test, {**wanted, **given}))

    async def _play(self, test: Any, arguments: dict[str, Any]) -> None:
        async with self._room:
            await test(**arguments)


def _arguments(item: pytest.Function) -> dict[str, Any]:
    return dict(item.callspec.params) if hasattr(item, "callspec") else {}


def _may(item: pytest.Function) -> bool:
    mark = item.get_closest_marker("together")
    if mark is None or mark.args == (False,) or not inspect.iscoroutinefunction(item.obj):
        return False
    shared = set(inspect.signature(item.obj).parameters) - set(_arguments(item))
    return all(_scope(item, name) in ("module", "package", "session") for name in shared)


def _scope(item: pytest.Function, name: str) -> str:
    found = item.session._fixturemanager.getfixturedefs(name, item)
    return found[-1].scope if found else ""
