"""Markdown on a terminal, block by block while a model writes it."""

import shutil

import click
from rich.console import Console
from rich.markdown import Markdown

from cli.render.output import clean

FENCES = ("```", "~~~")


class MarkdownStream:
    """Takes text in pieces and prints each block as soon as it is complete: a paragraph, a list, a code block."""

    def __init__(self) -> None:
        self._text = ""

    @property
    def empty(self) -> bool:
        return not self._text.strip()

    def write(self, text: str) -> None:
        self._text += text
        if end := _end_of_blocks(self._text):
            block, self._text = self._text[:end], self._text[end:]
            print_markdown(block)

    def finish(self) -> None:
        text, self._text = self._text, ""
        if text.strip():
            print_markdown(text)


def print_markdown(text: str) -> None:
    """Print a link with its address, so that people see where it leads."""
    colour = click.get_current_context().color is not False
    width = shutil.get_terminal_size().columns
    console = Console(width=width, force_terminal=colour, no_color=not colour, highlight=False)
    with console.capture() as captured:
        # cleaned first: a model's text could contain terminal codes
        console.print(Markdown(clean(text), hyperlinks=False))
    lines = [line.rstrip() for line in captured.get().rstrip().split("\n")]
    click.echo("\n".join(lines))


def _end_of_blocks(text: str) -> int:
    """The end of the last complete block: after a blank line that is not inside a code block."""
    end = position = 0
    fence = ""
    for line in text.splitlines(keepends=True):
        position += len(line)
        mark = next((mark for mark in FENCES if line.lstrip().startswith(mark)), "")
        if fence:
            fence = "" if mark == fence else fence
        elif mark:
            fence = mark
        elif not line.strip() and line.endswith("\n"):
            end = position
    return end
