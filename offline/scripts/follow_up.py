"""A further message in a conversation that began with a script: short, and true to what was answered before."""

from offline.conversation import Conversation
from offline.markers import Marker
from offline.reply import Reply, Story


def tell(conversation: Conversation, marker: Marker) -> Story:
    message = " ".join(conversation.request.split())[:300]
    yield Reply(text=f"You wrote: {message}\n\nMy last answer stands: {conversation.last_answer}")
