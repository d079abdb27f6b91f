"""The pauses between two polls of a call that continues at a server."""

from domain.sessions.session import LONGEST_POLL_MS, SHORTEST_POLL_MS
from workflows.session.tools import CROWDED_POLL_MS, pause_ms


def test_pauses_grow_to_a_limit_and_a_server_may_want_longer_ones() -> None:
    pauses = [pause_ms(0, polls, crowded=False) for polls in range(60)]
    assert pauses == sorted(pauses) and (pauses[0], pauses[-1]) == (SHORTEST_POLL_MS, LONGEST_POLL_MS)
    assert pause_ms(20_000, 0, crowded=False) == 20_000
    weeks = 10_000  # number of polls
    assert pause_ms(0, weeks, crowded=False) == LONGEST_POLL_MS
    assert pause_ms(0, weeks, crowded=True) == CROWDED_POLL_MS
