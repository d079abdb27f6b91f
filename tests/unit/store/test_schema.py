"""No statement of the store changes a stored message."""

import re
from pathlib import Path

import store

STORE = Path(store.__file__).parent
CHANGES = re.compile(r"\bUPDATE\s+(ONLY\s+)?(\w+\.)?messages\b|INTO\s+messages\b[^;]*DO\s+UPDATE", re.IGNORECASE)


def test_no_statement_changes_a_message() -> None:
    assert CHANGES.search("UPDATE messages SET body = ''") and CHANGES.search("INTO messages (id) … DO UPDATE SET x")
    files = [path for kind in ("*.py", "*.sql") for path in STORE.rglob(kind)]
    assert files and [path.name for path in files if CHANGES.search(path.read_text())] == []
    # the only statement whose table is a parameter: it encrypts values again
    assert not re.search(r"""["']messages["']""", (STORE / "resealing.py").read_text())
