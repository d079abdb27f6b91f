"""One answer after the other, whatever is said in between: [[script:answers json=["first", "second"]]]."""

from offline.conversation import Conversation
from offline.markers import Marker, MarkerError
from offline.reply import Reply, Story


def tell(conversation: Conversation, marker: Marker) -> Story:
    answers = marker.options.get("json")
    if not isinstance(answers, list) or not answers or not all(isinstance(answer, str) for answer in answers):
        raise MarkerError(f'{marker.raw[:80]}: json=["...", ...] is needed')
    yield Reply(text=answers[min(conversation.assistant_turns, len(answers) - 1)])
