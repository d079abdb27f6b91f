"""A stored message is never changed, so hooks have no moment before or after that."""

import re
from pathlib import Path

import pytest

import store

FOLDER = Path(store.__file__).parent
CHANGES = re.compile(r"\bUPDATE\s+(ONLY\s+)?(\w+\.)?messages\b|INTO\s+messages\b[^;]*DO\s+UPDATE", re.IGNORECASE)


@pytest.mark.proves("S4-B12")  # its hooks for updated messages: there is no update. Behaviour tests show the others
def test_no_statement_changes_a_message() -> None:
    assert CHANGES.search("UPDATE messages SET body = ''") and CHANGES.search("INTO messages (id) … DO UPDATE SET x")
    files = [path for kind in ("*.py", "*.sql") for path in FOLDER.rglob(kind)]
    assert files and [path.name for path in files if CHANGES.search(path.read_text())] == []
    # the one statement whose table is a parameter, for values that are encrypted again
    assert '"messages"' not in (FOLDER / "resealing.py").read_text()
