"""The point from which a run that takes a session over continues."""

from domain.sessions.session import AgentRef, ResumePoint, SideName
from domain.sessions.session_state import Line, SessionState
from store.runs import place


def test_the_side_that_replied_last_continues() -> None:
    first, second = Line(agent=_side("a"), models=["m"]), Line(agent=_side("b"), models=["m"])
    state = SessionState(line=first, waiting_line=second)
    place(state, ResumePoint(head="node", step=3), ["a", "b", "b"])
    assert state.waiting_line is not None
    assert (state.line.agent.side, state.line.steps, state.line.head) == ("b", 2, "node")
    assert (state.waiting_line.agent.side, state.waiting_line.steps, state.turns) == ("a", 1, 1)


def _side(name: SideName) -> AgentRef:
    return AgentRef(owner="*", name="pair", version=1, side=name)
