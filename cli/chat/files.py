"""Files attached to a chat message: named with /file, or as @path in its text."""

import re
from pathlib import Path

import click

from cli.api import Api
from cli.commands.run import upload

_AT_PATH = re.compile(r"(?:^|(?<=\s))@(\S+)")


def named_files(text: str) -> list[Path]:
    """The files that a message names as @path; any other @ is plain text."""
    # a path at the end of a sentence has its punctuation
    paths = [Path(name.rstrip(".,;:!?)")).expanduser() for name in _AT_PATH.findall(text)]
    return [path for path in dict.fromkeys(paths) if path.is_file()]


def chosen_file(name: str) -> Path:
    path = Path(name).expanduser()
    if not name or not path.is_file():
        raise click.UsageError(f"there is no file {name!r}; write /file PATH" if name else "give a file: /file PATH")
    return path


def upload_all(api: Api, paths: list[Path]) -> list[str]:
    try:
        return [upload(api, path) for path in dict.fromkeys(paths)]
    except OSError as error:
        raise click.UsageError(f"{error.filename}: {error.strerror}") from None
