"""Turns that callers begin in a mission's conversation: they are runs of the mission, with its budgets, pauses and
risks."""

from api.http.auth import Call
from domain.errors import Conflict
from domain.missions import Hold, Mission
from domain.sessions.new_session import NewSession
from domain.sessions.session_writes import Acceptance
from store import mission_admission, missions
from store.new_sessions import Accepted
from store.workspaces import Manifest


async def mission_of(call: Call, conversation_id: str) -> Mission | None:
    """The mission of a conversation, up to date with everything that has happened."""
    found = await missions.of_conversation(call.pool, call.tenant, conversation_id)
    # settled first: a mission whose budget was spent or that expired a moment ago must not admit another turn
    return found and await missions.settle(call.pool, call.tenant, found.id)


async def as_run(call: Call, conversation_id: str, session: NewSession) -> NewSession:
    """The session as a run of the conversation's mission, if it has one; refused while the mission may not run."""
    mission = await mission_of(call, conversation_id)
    if mission is None:
        return session
    admitted = await mission_admission.admit(call.pool, mission, conversation_id)
    if isinstance(admitted, Hold):
        raise _held(admitted)
    return mission_admission.marked(session, mission)


async def accept(call: Call, acceptance: Acceptance, *, files: Manifest) -> Accepted:
    """A turn in the conversation of a mission."""
    # admission and the new session in one transaction, so that two turns cannot both use the last of a budget
    accepted = await mission_admission.accept_turn(call.pool, acceptance, files)
    if isinstance(accepted, Hold):
        raise _held(accepted)
    return accepted


def _held(hold: Hold) -> Conflict:
    return Conflict(f"The mission of this conversation does not run now: {hold.text}.", type=hold.kind)
