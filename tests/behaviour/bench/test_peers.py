"""The comparison with peers: the bare loop as a peer on the real stack."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.lab import Lab
from bench.peers.contest import compete, home_team, visitors
from bench.peers.peer import Peer
from tests.behaviour.bench.own_contestant import TOO_LONG

PYTHON = Path(sys.executable)


@dataclass(frozen=True)
class Own(Peer):
    @property
    def module(self) -> str:
        return f"tests.behaviour.bench.{self.name}"


OWN = Own("own_contestant", "the bare loop as a peer", "It is the same loop.")
NOBODY = Own("nobody", "a peer that is not there")


async def test_peers_are_measured_side_by_side(lab: Lab, tmp_path: Path) -> None:
    async with visitors(lab, PYTHON, [OWN, NOBODY], tmp_path) as guests:
        results = await compete(lab, [*home_team(lab), *guests], [2, TOO_LONG], 1, lambda _: None)
    short, long = results[:5], results[5:]
    bare, calling, ours, own, nobody = short
    for taken in (bare, calling, ours, own):
        (figures,) = taken.rounds
        assert figures.ms > 0 and figures.history and figures.history > 500 and figures.stored >= figures.history * 2
    assert own.rounds[0].history == pytest.approx(bare.rounds[0].history, rel=0.1)
    assert long[3].failed == "ValueError: 7 steps are too many" and long[3].rounds == []
    assert long[0].rounds and not long[2].failed
    assert "nobody" in nobody.failed and nobody.failed == long[4].failed
