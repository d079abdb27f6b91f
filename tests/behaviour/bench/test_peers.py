"""The comparison with peers: the bare loop as a peer on the real stack, the table, and the lock file."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.lab import Lab
from bench.peers.contest import Contestant, Figures, Result, compete, home_team, visitors
from bench.peers.peer import Peer
from bench.peers.report import as_table
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


def entered(name: str, note: str = "") -> Contestant:
    async def run(steps: int) -> list[str]:
        return []

    return Contestant(name, run, note=note)


RESULTS = [
    Result(entered("bare loop"), 10, [Figures(20, 10, 1_000, 10_000), Figures(40, 10, 1_000, 10_000)]),
    Result(entered("quick", "Why."), 10, [Figures(10, 5, None, 0), Figures(10, 5, None, 0)]),
    Result(entered("limited"), 10, [Figures(1, 1, 1, 1)], failed="history size exceeds limit"),
]


def test_ratios_are_one_table() -> None:
    lines = [" ".join(line.split()) for line in as_table(RESULTS, 2).splitlines()]
    assert "N=10: the bare loop took 30 ms and 10 ms of CPU a step, 1000 bytes of history a step, 10 kB in all" in lines
    assert "bare loop 1.00 1.00 1.00 1.00" in lines
    assert "quick [1] 0.38 [0.25-0.50] 0.50 none 0.00" in lines  # 10/20 and 10/40 are ratios within one round
    assert "limited FAILED: history size exceeds limit" in lines
    assert lines[-1] == "[1] Why."
