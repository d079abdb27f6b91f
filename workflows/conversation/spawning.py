"""Spawning: which children of a step may start, on which thread, and how their outcomes will come home."""

from domain.conversations.delegation import DelegationTool
from domain.conversations.mailbox import DeliveryMode
from domain.conversations.requests import OpenSession, Spawn, SpawnAnswer, SpawnAnswers, SpawnChild
from domain.conversations.state import ConversationState, Thread
from domain.sessions.session import Reason
from domain.sessions.step import StopRequest
from workflows.conversation.starter import SessionStarter

PARENT_ENDED = StopRequest(reason=Reason.INTERRUPTED, by="its parent has ended")
REFUSED = {
    "cancelled": "This session was cancelled or has ended; nothing new begins below it.",
    "budget_spent": "The budget shared with all subagents is spent; nothing was started.",
}


async def spawn_children(state: ConversationState, starter: SessionStarter, spawn: Spawn) -> SpawnAnswers:
    """Reserve, write down and start; each child gets its answer, and a refused one leaves nothing behind."""
    parent = state.threads.get(spawn.thread, Thread())  # an unknown one is refused below: its session cannot be live
    own = {child.session_id for child in spawn.children}  # live already if this is a repeat that we do not remember
    active = sum(1 for child, live in state.live.items() if live.spawned_by is not None and child not in own)
    answers: dict[str, SpawnAnswer] = {}
    openings: list[OpenSession] = []
    for child in spawn.children:
        thread_id = _thread_of(state, spawn, child)
        known = state.threads.get(thread_id)
        error = _refusal(state, spawn, parent, active + len(openings))
        if error is None and any(opening.thread_id == thread_id for opening in openings):
            error = f"'{child.name}' was just given another task in this very step. Wait for it, or use another name."
        if error is not None:
            answers[child.session_id] = SpawnAnswer(session_id=child.session_id, error=error)
            continue
        if known is None:
            state.threads[thread_id] = Thread(parent=spawn.thread, name=_thread_name(child), depth=parent.depth + 1)
        # only the root can be fired: a deeper spawner must be woken
        delivery = (
            DeliveryMode.WAKE if parent.parent is not None and child.delivery is DeliveryMode.HOLD else child.delivery
        )
        openings.append(
            OpenSession(
                session_id=child.session_id,
                thread_id=thread_id,
                parent_thread_id=spawn.thread,
                thread_name=_thread_name(child),
                depth=parent.depth + 1,
                document=child.document,
                prompt=child.prompt,
                delivery=delivery,
            )
        )
        answers[child.session_id] = SpawnAnswer(session_id=child.session_id, delivery=delivery)
    if openings:
        # the store knows who is at work; its word may come before that of a session that has just ended
        names = {child.session_id: child.name for child in spawn.children}
        for opened in await starter.open_all(openings):
            if opened.refused or opened.busy:
                error = (
                    _still_running(names[opened.session_id], opened.busy)
                    if opened.busy
                    else REFUSED.get(opened.refused or "", f"refused ({opened.refused})")
                )
                answers[opened.session_id] = SpawnAnswer(session_id=opened.session_id, error=error)
            elif opened.blocking and spawn.spawned_by not in state.live:
                # the parent ended while its child was being written down: who would have stopped it did not know it
                await starter.tell(opened.session_id, "stop", PARENT_ENDED)
    return SpawnAnswers(answers=[answers[child.session_id] for child in spawn.children])


def _thread_of(state: ConversationState, spawn: Spawn, child: SpawnChild) -> str:
    if child.thread is not None:
        return child.thread
    if child.door is DelegationTool.ASYNC_DELEGATE:
        for thread_id, thread in state.threads.items():
            if thread.parent == spawn.thread and thread.name == child.name:
                return thread_id
    return child.session_id  # a new thread is named after its first session


def _thread_name(child: SpawnChild) -> str:
    return child.name if child.door is DelegationTool.ASYNC_DELEGATE else child.session_id


def _refusal(state: ConversationState, spawn: Spawn, parent: Thread, active: int) -> str | None:
    if spawn.spawned_by not in state.live:
        return "The session that asked for it has ended."
    if parent.depth + 1 > spawn.max_depth:
        return f"Subagents may not be nested deeper than {spawn.max_depth}. Do this part yourself."
    if active >= spawn.max_children:
        return f"{active} subagents are running, as many as may. Wait for some of them first."
    return None


def _still_running(name: str, session_id: str) -> str:
    return (
        f"'{name}' is still running (session: {session_id}). "
        "Wait for its outcome, or send it a message with steer_subagent."
    )
