"""The readable text of an HTML page. It is also a script, so that a page that keeps the parser busy can be stopped."""

import re
import sys
from html.parser import HTMLParser

_UNSEEN = frozenset({"script", "style", "noscript", "template", "svg", "head", "iframe", "object"})
_BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figcaption", "figure"),
        *("footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol"),
        *("p", "pre", "section", "table", "tr", "ul"),
    )
)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.title = ""
        self._unseen: list[str] = []
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_title = tag == "title" and not self.title
        if tag in _UNSEEN:
            self._unseen.append(tag)
        elif tag == "body":
            self._unseen.clear()  # a head that was never closed ends here
        elif tag in _BLOCKS:
            self.pieces.append("\n- " if tag == "li" else "\n")
        elif tag in ("td", "th"):
            self.pieces.append("\t")

    def handle_endtag(self, tag: str) -> None:
        self._in_title = False
        if tag in self._unseen:
            del self._unseen[self._unseen.index(tag) :]
        elif tag in _BLOCKS:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._unseen:
            self.pieces.append(re.sub(r"\s+", " ", data))


def html_text(html: str) -> str:
    """Title and text, one line per block; scripts, styles and the like are left out."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    text = "".join(reader.pieces)
    lines = [" ".join(line.split()) for line in text.split("\n")]
    body = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    title = " ".join(reader.title.split())
    return f"{title}\n\n{body}" if title else body


if __name__ == "__main__":
    text = html_text(sys.stdin.buffer.read().decode(errors="replace"))
    sys.stdout.buffer.write(text.encode(errors="replace"))
