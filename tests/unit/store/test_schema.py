"""The schema: numbers of migrations, stored messages that never change, and the point from which a run takes over."""

import re
from pathlib import Path

import store
from domain.sessions.session import AgentRef, ResumePoint, SideName
from domain.sessions.session_state import Line, SessionState
from store.runs import place

STORE = Path(store.__file__).parent
CHANGES = re.compile(r"\bUPDATE\s+(ONLY\s+)?(\w+\.)?messages\b|INTO\s+messages\b[^;]*DO\s+UPDATE", re.IGNORECASE)


def test_no_statement_changes_a_message() -> None:
    assert CHANGES.search("UPDATE messages SET body = ''") and CHANGES.search("INTO messages (id) … DO UPDATE SET x")
    files = [path for kind in ("*.py", "*.sql") for path in STORE.rglob(kind)]
    assert files and [path.name for path in files if CHANGES.search(path.read_text())] == []
    # the only statement whose table is a parameter: it encrypts values again
    assert not re.search(r"""["']messages["']""", (STORE / "resealing.py").read_text())


def test_the_side_that_replied_last_continues() -> None:
    first, second = Line(agent=_side("a"), models=["m"]), Line(agent=_side("b"), models=["m"])
    state = SessionState(line=first, waiting_line=second)
    place(state, ResumePoint(head="node", step=3), ["a", "b", "b"])
    assert state.waiting_line is not None
    assert (state.line.agent.side, state.line.steps, state.line.head) == ("b", 2, "node")
    assert (state.waiting_line.agent.side, state.waiting_line.steps, state.turns) == ("a", 1, 1)


def _side(name: SideName) -> AgentRef:
    return AgentRef(owner="*", name="pair", version=1, side=name)
