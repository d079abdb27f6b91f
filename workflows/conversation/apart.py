"""Messages that a running session must not read, in conversations whose run knows of them."""

from collections.abc import Iterable

from temporalio import workflow

from domain.conversations.state import ConversationState, WaitingMessage

READ_APART = "messages-read-apart"  # runs that began before it signal every message to the running session


def settle_apart(messages: Iterable[WaitingMessage]) -> None:
    """Clear the flag if an earlier version, which ignores it, has handled such a message in this run."""
    apart = [message for message in messages if message.apart]
    # only here, so that no other conversation gets a marker
    if apart and not workflow.patched(READ_APART):
        for message in apart:
            message.apart = False


def settled(state: ConversationState) -> ConversationState:
    """A state that was loaded or carried, with the flags that count in this run."""
    settle_apart(message for thread in state.threads.values() for message in thread.inbox)
    return state
