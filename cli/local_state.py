"""The command line's state on this machine: the id used last, and the lines typed in chats."""

import contextlib
import hashlib
from pathlib import Path

import click

from settings import Settings


def state_folder() -> Path | None:
    """A private folder of the user; None if it cannot be made."""
    settings = click.get_current_context().find_object(Settings)
    base = settings.xdg_state_home if settings and settings.xdg_state_home else None
    try:
        folder = (base or Path.home() / ".local" / "state") / "errand"
        # private, because lines that were typed in chats are stored here
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder


def _last_file(address: str) -> Path | None:
    """The file for a server; each server has its own."""
    folder = state_folder()
    # a digest, because an address contains characters that file names cannot have
    return folder / f"last-{hashlib.sha256(address.encode()).hexdigest()[:12]}" if folder else None


def read_last(address: str) -> str | None:
    file = _last_file(address)
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return (file.read_text().strip() or None) if file else None
    return None


def write_last(address: str, task_id: str) -> None:
    file = _last_file(address)
    with contextlib.suppress(OSError):  # only a convenience, so no command fails without it
        if file:
            file.write_text(task_id)


def chat_history() -> Path | None:
    folder = state_folder()
    return folder / "chat-history" if folder else None
