"""The exact texts of the delegation tools. Models and tests rely on them: each tool keeps its own form."""

from domain import wire
from domain.conversations.mailbox import Outcome, quote, quote_line
from domain.sessions.session import Status, preview

MAX_PROGRESS = 200  # characters of a subagent's progress in a list


def describe_dispatch(name: str, session_id: str) -> str:
    return f"Task dispatched to '{name}' (session: {session_id})"


def describe_launch(session_id: str, agent: str, description: str) -> str:
    return (
        f"task_id: {session_id}\nagent: {agent}\ndescription: {description}\nstatus: launched\n\n"
        "Use async_task_result with this task_id to retrieve the result when ready."
    )


def background(session_id: str, name: str) -> str:
    return (
        f"agent_id: {session_id}\nname: {name}\nstatus: started\n\n"
        "It works in the background and reports by messages; you are told if it fails."
    )


def running(session_id: str, note: str = "") -> str:
    text = "The task is still in progress. Try again shortly."
    return f"status: running\ntask_id: {session_id}\n\n{text}" + (f"\n{note}" if note else "")


def describe_promoted(session_id: str) -> str:
    text = "The task continues in the background. Its outcome will come later; do not start it again."
    return f"status: running\ntask_id: {session_id}\n\n{text}"


def not_found(session_id: str) -> str:
    text = "Session not found. The task_id may be invalid or the session was deleted."
    return f"status: error\ntask_id: {session_id}\n\n{text}"


def another_agent(session_id: str, agent: str, instead: str) -> str:
    return (
        f"This subagent (session: {session_id}) is the agent '{agent}', which cannot change. "
        f"Continue it with agent '{agent}', or {instead}. Nothing was started."
    )


def result(outcome: Outcome, error_type: str | None) -> str:
    """The result of a child that has ended: complete, or an error with its output so far."""
    if outcome.status is Status.COMPLETED:
        text = outcome.last_reply() or "(no output)"
        return f"status: complete\ntask_id: {outcome.session_id}\n\n<task_result>\n{text}\n</task_result>"
    kind = "MessageAbortedError" if outcome.status is Status.CANCELLED else error_name(error_type)
    return f"status: error\ntask_id: {outcome.session_id}\nerror_type: {kind}\n\n{outcome.failure_so_far}"


def error_name(error_type: str | None) -> str:
    """Map our error types to the five names of the async_task contract."""
    if error_type in ("authentication_error", "permission_error", "billing_error"):
        return "ProviderAuthError"
    if error_type == wire.CONTEXT_TOO_LONG:  # a reply that was cut off is continued and is no error
        return "MessageOutputLengthError"
    return "ApiError" if error_type and error_type != "needs_input" else "UnknownError"


def describe_ended_turn(reference: str) -> str:
    """The result of a child that reports for itself: its text is not handed on."""
    return f"Subagent (reference: {reference}) has ended its turn. It sends you what you should know."


def subagent_started(name: str, reference: str, *, explicit: bool) -> str:
    later = "It sends you what you should know." if explicit else "Its result will be sent to you when it is there."
    return f"Subagent '{name}' (reference: {reference}) was started. {later}"


def message_delivered(name: str, reference: str) -> str:
    return f"The message was delivered to subagent '{name}' (reference: {reference})."


def from_subagent(reference: str, content: str, *, needs_answer: bool) -> str:
    need = "It needs an answer" if needs_answer else "It needs no answer"
    return f"Subagent (reference: {reference}) has sent a message. {need}.\n\n{content}"


def no_address(name: str) -> str:
    return f"Subagent '{name}' ended with its result and accepts no messages; start a new one instead."


def was_terminated(name: str, reference: str) -> str:
    return f"Subagent '{name}' (reference: {reference}) was terminated and can be sent nothing."


def name_taken(name: str, reference: str) -> str:
    return (
        f"There is a subagent '{name}' (reference: {reference}) already. Send it a message with subagent_message, or "
        "use another name. Nothing was started."
    )


def too_many_instances(agent: str, most: int, names: list[str]) -> str:
    there = "There is 1 instance" if most == 1 else f"There are {most} instances"
    return (
        f"{there} of '{agent}', as many as there may be: {', '.join(names)}. "
        f"Send a message to {'it' if most == 1 else 'one of them'} with subagent_message instead. Nothing was started."
    )


def listing_line(name: str, agent: str, session_id: str, status: Status, progress: str) -> str:
    """One subagent in a list. Its progress may be text that it wrote itself, such as a question to a person."""
    line = f"- {quote_line(name)} (agent {agent}, session: {session_id}): {status}"
    return f"{line}, {quote(preview(progress, MAX_PROGRESS))}" if progress else line


def describe_gathered(blocks: list[str], still_running: list[str]) -> str:
    text = "\n\n".join(blocks)
    if still_running:
        text += "\n\n" if text else ""
        text += "Still running (nothing was cancelled): " + ", ".join(still_running)
    return text


def unknown_subagent(name: str, available: list[str]) -> str:
    listed = ", ".join(available) or "none"
    return f"There is no subagent '{name}' for you. Available: {listed}. Nothing was started."
