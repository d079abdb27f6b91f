"""Fixtures of all tests: one real stack for the whole run, started when the first test asks for it."""

import gc
import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from hypothesis import settings

from tests.support.launch import embedded
from tests.support.stack import Stack

pytest_plugins = [
    "tests.support.longest_first",
    "tests.support.proves",
    "tests.support.second_try",
    "tests.support.together",
]

# Property tests use the same examples in every run; `--hypothesis-profile=search` looks for new ones. They have no
# deadline, because they check rules and not the speed of a busy machine.
settings.register_profile("errand", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("search", deadline=None, max_examples=1_000)
settings.load_profile("errand")


gc.disable()  # objects made during collection are kept anyway; scanning them would take two fifths of its time


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest_asyncio.fixture(scope="session")
async def stack() -> AsyncIterator[Stack]:
    async with embedded() as running:
        yield running


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if shutil.which("chromium") is None:
        terminalreporter.write_line("no chromium: the console was not tested; `apt-get install chromium` adds it")
