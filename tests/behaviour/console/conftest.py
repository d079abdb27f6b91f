"""A real browser, the system's chromium, and its pages of the console."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

CHROMIUM = shutil.which("chromium") or ""
needs_browser = pytest.mark.skipif(
    not CHROMIUM, reason="there is no chromium here; as root `apt-get install chromium` adds it"
)
expect.set_options(timeout=20_000)  # enough for a busy machine
Opener = Callable[[str], Awaitable[Page]]


@pytest_asyncio.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as tool:
        running = await tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        await running.close()


@pytest_asyncio.fixture
async def opened(browser: Browser) -> AsyncIterator[Opener]:
    """Open an address in a new context; at the end, assert that no page logged an error."""
    problems: list[str] = []
    contexts = []

    async def open_page(address: str) -> Page:
        context = await browser.new_context(viewport={"width": 1200, "height": 900})
        contexts.append(context)
        page = await context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: _note(message, problems))
        page.on("pageerror", lambda error: problems.append(str(error)))
        await page.goto(address)
        return page

    yield open_page
    for context in contexts:
        await context.close()
    assert problems == []


def _note(message: ConsoleMessage, problems: list[str]) -> None:
    # the browser itself logs refused and lost connections, even if the page handles them
    if message.type == "error" and "Failed to load resource" not in message.text:
        problems.append(message.text)
