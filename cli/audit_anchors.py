"""Anchors: heads of the audit log are kept outside of the platform, in a growing file or at an address."""

import json
from datetime import UTC, datetime
from pathlib import Path

import httpx2

from cli.errors import CliError

TIMEOUT_S = 20.0


def last_head(anchor: str | None) -> str | None:
    """The last head in a file; None if there is none yet, and for an address, which only receives."""
    if anchor is None or _is_url(anchor) or not Path(anchor).exists():
        return None
    try:
        lines = [line for line in Path(anchor).read_text().splitlines() if line.strip()]
        return str(json.loads(lines[-1])["head"]) or None if lines else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CliError(f"{anchor} cannot be read as a list of heads ({type(error).__name__})") from None


def keep(anchor: str, head: str, entries: int, chains: int) -> None:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    line = json.dumps({"at": at, "head": head, "entries": entries, "chains": chains})
    try:
        if _is_url(anchor):
            headers = {"content-type": "application/json"}
            httpx2.post(anchor, content=line, headers=headers, timeout=TIMEOUT_S).raise_for_status()
        else:
            # appended and never rewritten: earlier heads prove what the log once contained
            with Path(anchor).open("a") as file:
                file.write(f"{line}\n")
    except (OSError, httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise CliError(f"the head could not be kept ({type(error).__name__})") from None


def _is_url(anchor: str) -> bool:
    return anchor.startswith(("https://", "http://"))
