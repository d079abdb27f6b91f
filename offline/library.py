"""A small web of the stand-in's own: a few true pages, a search over them, and replies of vendors with its results."""

import html
import re
from typing import Any, NamedTuple

from offline.markers import without_markers
from offline.wire import ApiError

_WORD = re.compile(r"[a-z]{3,}")
PAGES: dict[str, tuple[str, list[str]]] = {
    "fresnel-lens": (
        "The Fresnel lens",
        [
            "Augustin-Jean Fresnel divided a lens into rings of prisms, so that it stays thin however large it is.",
            "His first lens for a lighthouse was lit in the tower of Cordouan in 1823.",
            "Its light was seen from more than 32 kilometres away, about twice as far as that of mirrors.",
        ],
    ),
    "argand-lamp": (
        "The Argand lamp",
        [
            "Aimé Argand patented a lamp with a hollow wick and a glass chimney in 1784.",
            "It burned as bright as six to ten candles with little smoke, so lighthouses soon used it with mirrors.",
        ],
    ),
    "electric-light": (
        "Electric light in lighthouses",
        [
            "South Foreland in Kent was the first lighthouse with an electric light, an arc lamp tried in 1858.",
            "Electric lamps were dear at first, and oil lamps with mantles stayed common until the 1920s.",
        ],
    ),
}


class PageHit(NamedTuple):
    url: str
    title: str
    sentence: str


def show_page(name: str) -> str | None:
    if name not in PAGES:
        return None
    title, sentences = PAGES[name]
    text = "".join(f"<p>{html.escape(one)}</p>" for one in sentences)
    return f"<!doctype html><title>{title}</title><h1>{title}</h1>{text}"


def search(query: str, base: str) -> list[PageHit]:
    """The pages with words of the query, the best first, each with its best sentence."""
    wanted = {word.rstrip("s") for word in _WORD.findall(query.lower())}

    def score(text: str) -> int:
        return len(wanted & {word.rstrip("s") for word in _WORD.findall(text.lower())})

    found = [
        (score(" ".join([title, *sentences])), PageHit(f"{base}pages/{name}", title, max(sentences, key=score)))
        for name, (title, sentences) in PAGES.items()
    ]
    return [hit for points, hit in sorted(found, key=lambda one: -one[0]) if points]


def is_search(body: dict[str, Any]) -> bool:
    """Whether a request asks for the vendor's own search."""
    return any(str(tool.get("type", "")).startswith("web_search") for tool in body.get("tools") or [])


def answer_search(prompt: str, base: str) -> list[dict[str, Any]]:
    """The content of Anthropic's reply: the text of a result is encrypted, and the reply quotes it."""
    query = without_markers(prompt.partition(": ")[2])
    hits = search(query, base)
    results = [
        {"type": "web_search_result", "url": hit.url, "title": hit.title, "encrypted_content": "", "page_age": None}
        for hit in hits
    ]
    cited = [
        {"type": "web_search_result_location", "url": hit.url, "title": hit.title, "cited_text": hit.sentence}
        for hit in hits
    ]
    return [
        {"type": "server_tool_use", "id": "srvtoolu_0", "name": "web_search", "input": {"query": query}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_0", "content": results},
        {"type": "text", "text": f"I found {len(hits)} pages.", "citations": cited},
    ]


def to_search(body: Any) -> Any:
    """A request of OpenAI's Responses API in Anthropic's form; only searches are answered."""
    if not isinstance(body, dict) or not is_search(body):
        raise ApiError(400, "Only requests with the tool web_search are answered here.")
    message = {"role": "user", "content": body.get("input")}
    tools = [{"type": "web_search", "name": "web_search"}]
    return {"model": body.get("model"), "max_tokens": 2_000, "messages": [message], "tools": tools}


def to_response(message: dict[str, Any]) -> dict[str, Any]:
    """The same reply in the form of that API: its text has marks, which are the citations."""
    called, _, said = message["content"]
    text, marks = "", []
    for cited in said["citations"]:
        start = len(text) + len(cited["cited_text"]) + 1
        text += f"{cited['cited_text']} ([{cited['title']}]({cited['url']}))\n"
        mark = {"type": "url_citation", "url": cited["url"], "title": cited["title"]}
        marks.append({**mark, "start_index": start, "end_index": len(text) - 1})
    sources = [{"type": "url", "url": cited["url"]} for cited in said["citations"]]
    action = {"type": "search", "query": called["input"]["query"], "sources": sources}
    part = {"type": "output_text", "text": text, "annotations": marks}
    used = message["usage"]
    return {
        "object": "response",
        "model": message["model"],
        "status": "completed",
        "output": [
            {"type": "web_search_call", "id": "ws_0", "status": "completed", "action": action},
            {"type": "message", "role": "assistant", "content": [part]},
        ],
        "usage": {"input_tokens": used["input_tokens"], "output_tokens": used["output_tokens"]},
    }
