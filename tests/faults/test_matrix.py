"""The short form of the fault bench; the long one is `python -m tests.faults`: callers work while everything breaks."""

from pathlib import Path

import pytest

from tests.faults.matrix import ANY, SHORT, prepare, run
from tests.support.stack import Stack


@pytest.mark.parametrize(("name", "seed"), [("nothing", 1), (ANY, 2)])
@pytest.mark.proves("S1-05", "F-09", "F-14")
async def test_faults_lose_and_double_nothing(stack: Stack, tmp_path: Path, name: str, seed: int) -> None:
    await prepare(stack)
    row = await run(stack, name, seed, SHORT, tmp_path)
    assert row.violations.named == []
    assert row.tasks >= 7 and (row.hits > 0) == (name != "nothing"), "nothing was tested"
