"""The messages of a session, read from the tree for the pages that show them."""

from errand import models

from domain.conversations.display_messages import display_messages as displayed
from domain.messages import Node
from store import conversations, messages
from store.database import Pool
from store.sessions import SessionRow


async def display_messages(pool: Pool, session: SessionRow) -> list[models.DisplayMessage]:
    """The session's own part of the history, oldest first; before its first reply, the messages that opened it."""
    if own := await own_nodes(pool, session):
        return [models.DisplayMessage.model_validate(one) for one in displayed(own)]
    opening = [await conversations.message_text(pool, session.tenant, message_id) for message_id in session.inbox]
    return [models.DisplayMessage(type="user", text=text) for text in opening if text]


async def own_nodes(pool: Pool, session: SessionRow) -> list[Node]:
    """The nodes that a session added to the history; for a rerun, also those copied at its start."""
    known = None if session.rerun else session.base_head
    nodes = await messages.path(pool, session.tenant, session.head, known)
    return [node for node in nodes if node.session_id == session.id]
