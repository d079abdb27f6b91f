"""What strangers wrote is computed beside the event loop. Texts of agents for the console: Markdown as clean HTML."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import nh3
from markdown_it import MarkdownIt

from domain.ids import current_tenant

MOST_CHARACTERS = 20_000  # of one text: half a second of work if it is written to be slow
_TAGS = {
    *("a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre"),
    *("s", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
# one separate thread: texts wait for one another, and nothing else waits for them
_thread = ThreadPoolExecutor(1, "texts")
_turns = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(1))  # by tenant


T = TypeVar("T")


async def compute(work: Callable[[], T]) -> T:
    """What `work` returns, outside the event loop. However many texts another tenant has, one of them comes first."""
    async with _turns[current_tenant.get()]:
        return await asyncio.get_running_loop().run_in_executor(_thread, work)


def render_markdown(text: str) -> str:
    """Without pictures, classes and styles; links only to http and https, in a page of their own."""
    shown, rest = text[:MOST_CHARACTERS], len(text) - MOST_CHARACTERS
    html = nh3.clean(
        _parser().render(shown),
        tags=_TAGS,
        attributes={"a": {"href"}, "ol": {"start"}, "*": set()},
        url_schemes={"http", "https"},
        link_rel="noopener noreferrer",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )
    return html if rest <= 0 else f"{html}<p>… {rest:,} more characters</p>"


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
