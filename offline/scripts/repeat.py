"""The same replies over and over: [[script:repeat json=[[{"name", "input"}], [...]] n=ROUNDS]]; without n, for ever."""

from itertools import count

from offline.conversation import Conversation
from offline.markers import Marker
from offline.reply import Reply, Story
from offline.scripts.steps import calls_of


def tell(conversation: Conversation, marker: Marker) -> Story:
    rounds = marker.count("n", 0)
    for number in count(1):
        for listed in marker.options.get("json") or [[]]:
            yield Reply(text=f"Round {number}.", calls=calls_of(marker, listed))
        if number == rounds:
            break
    yield Reply(text=f"Repeated {rounds} times.")
