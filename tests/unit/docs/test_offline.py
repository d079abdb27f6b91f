"""docs/agents.md names every script and every fault of the stand-in."""

import re

from offline.faults import CONDITIONS, STREAM_KINDS
from offline.scripts import SCRIPTS
from settings import ROOT

AGENTS = {path.stem for path in (ROOT / "agents").glob("*.md")}


def rows(heading: str) -> set[str]:
    section = (ROOT / "docs" / "agents.md").read_text().split(f"\n### {heading}\n")[1].split("\n##")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_page_names_every_script_and_fault() -> None:
    assert rows("Scripts") == set(SCRIPTS) - AGENTS  # the demos of the sample agents have no marker
    assert rows("Faults") >= {*STREAM_KINDS, *CONDITIONS, "auth", "429", "500", "529"}
