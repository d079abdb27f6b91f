"""Spawning: which children of a step may start, on which thread, and how their outcomes are delivered."""

from dataclasses import dataclass

from domain.conversations.answers import SpawnAnswer, SpawnAnswers
from domain.conversations.delegation import DelegationTool
from domain.conversations.mailbox import DeliveryMode
from domain.conversations.requests import Opened, OpenSession, Spawn, SpawnChild
from domain.conversations.state import ConversationState, Thread
from domain.wire import SessionRefusal
from workflows.conversation.router import StopChild

REFUSED: dict[str, str] = {
    SessionRefusal.CANCELLED: "This session was cancelled or has ended; nothing new begins below it.",
    SessionRefusal.TERMINATED: "It was terminated, so that nothing can be started there any more.",
    SessionRefusal.BUDGET_SPENT: "The budget shared with all subagents is spent; nothing was started.",
}


@dataclass(frozen=True)
class SpawnPlan:
    """The sessions to open, and the result for each child if its session opens."""

    openings: list[OpenSession]
    answers: dict[str, SpawnAnswer]


def plan_spawn(state: ConversationState, spawn: Spawn) -> SpawnPlan:
    """Decide which children may start and reserve their threads; a refused child leaves nothing behind."""
    if spawn.deferred is not None and spawn.thread not in state.threads:
        state.threads[spawn.thread] = Thread(**spawn.deferred.model_dump())
    # an unknown one is refused below, because its session cannot be live
    parent = state.threads.get(spawn.thread, Thread())
    own = {child.session_id for child in spawn.children}  # already live if this is a repetition that was forgotten
    active = sum(1 for child, live in state.live.items() if live.spawned_by is not None and child not in own)
    plan = SpawnPlan([], {})
    for child in spawn.children:
        thread_id = _thread_of(state, spawn, child)
        error = _refusal(state, spawn, parent, active + len(plan.openings))
        if error is None and any(opening.thread_id == thread_id for opening in plan.openings):
            error = f"'{child.name}' was just given another task in this very step. Wait for it, or use another name."
        if error is not None:
            plan.answers[child.session_id] = SpawnAnswer(session_id=child.session_id, error=error)
            continue
        if thread_id not in state.threads:
            state.threads[thread_id] = Thread(parent=spawn.thread, name=_thread_name(child), depth=parent.depth + 1)
        # only the root can be fired: a deeper spawner must be woken
        delivery = (
            DeliveryMode.WAKE if parent.parent is not None and child.delivery is DeliveryMode.HOLD else child.delivery
        )
        plan.openings.append(
            OpenSession(
                session_id=child.session_id,
                thread_id=thread_id,
                parent_thread_id=spawn.thread,
                thread_name=_thread_name(child),
                depth=parent.depth + 1,
                session=child.session,
                prompt=child.prompt,
                delivery=delivery,
                deferred=spawn.deferred is not None,
            )
        )
        plan.answers[child.session_id] = SpawnAnswer(session_id=child.session_id, delivery=delivery)
    return plan


def answer_spawn(
    state: ConversationState, spawn: Spawn, plan: SpawnPlan, opened: list[Opened]
) -> tuple[SpawnAnswers, list[StopChild]]:
    """The result for each child, in the order of the request; stop children whose parent has ended in between.

    The store is ahead of the state: a session's end may reach it before the post reaches us.
    """
    names = {child.session_id: child.name for child in spawn.children}
    answers, stops = dict(plan.answers), []
    for session in opened:
        if session.busy is not None:
            error = _still_running(names[session.session_id], session.busy)
            answers[session.session_id] = SpawnAnswer(session_id=session.session_id, error=error)
        elif session.refused is not None:
            error = REFUSED.get(session.refused, f"refused ({session.refused})")
            answers[session.session_id] = SpawnAnswer(session_id=session.session_id, error=error)
        elif session.blocking and spawn.spawned_by not in state.live:
            # The parent's post came while the child was being written, so it could not stop a child it did not know.
            stops.append(StopChild(session.session_id))
    return SpawnAnswers(answers=[answers[child.session_id] for child in spawn.children]), stops


def _thread_of(state: ConversationState, spawn: Spawn, child: SpawnChild) -> str:
    if child.thread is not None:
        return child.thread
    if child.kind is DelegationTool.ASYNC_DELEGATE:
        for thread_id, thread in state.threads.items():
            if thread.parent == spawn.thread and thread.name == child.name:
                return thread_id
    return child.session_id  # a new thread has the id of its first session


_NAMED = (DelegationTool.ASYNC_DELEGATE, DelegationTool.SUBAGENT_CREATE, DelegationTool.SUBAGENT_MESSAGE)


def _thread_name(child: SpawnChild) -> str:
    return child.name if child.kind in _NAMED else child.session_id


def _refusal(state: ConversationState, spawn: Spawn, parent: Thread, active: int) -> str | None:
    if spawn.spawned_by not in state.live and spawn.deferred is None:
        return "The session that asked for it has ended."
    if parent.depth + 1 > spawn.max_depth:
        return f"Subagents may not be nested deeper than {spawn.max_depth}. Do this part yourself."
    if active >= spawn.max_children:
        return f"As many subagents as may are running ({active}). Wait for some of them first."
    return None


def _still_running(name: str, session_id: str) -> str:
    return (
        f"'{name}' is still running (session: {session_id}). "
        "Wait for its outcome, or send it a message with steer_subagent."
    )
