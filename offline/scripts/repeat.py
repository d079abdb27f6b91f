"""Repeats the same replies: [[script:repeat json=[[{"name", "input"}], [...]] n=ROUNDS]]; without n, forever."""

from itertools import count

from offline.markers import Marker
from offline.reply import Replies, Reply
from offline.scripts.demo import counted
from offline.scripts.steps import calls_of
from offline.transcript import Transcript


def replies(transcript: Transcript, marker: Marker) -> Replies:
    rounds = marker.count("n", 0)
    for number in count(1):
        for listed in marker.options.get("json") or [[]]:
            yield Reply(text=f"Round {number}.", calls=calls_of(marker, listed))
        if number == rounds:
            break
    yield Reply(text=f"Repeated {counted(rounds, 'time')}.")
