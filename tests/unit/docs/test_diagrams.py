"""The diagrams of the docs are those that `errand agents graph` prints."""

import re

from activities.handlers.registry import HANDLERS
from activities.tools.registry import TOOLS
from agents.diagram import mermaid
from agents.loader import load_agents
from agents.problems import Catalogue
from settings import ROOT


def test_every_diagram_in_the_docs_is_generated() -> None:
    agents = load_agents(ROOT / "agents", Catalogue(TOOLS, HANDLERS))
    generated = {mermaid(agents, name) for name in agents}
    shown = re.findall(r"^```mermaid\n(.*?)^```$", (ROOT / "docs/graphs.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(shown) == 3
    assert [diagram for diagram in shown if diagram not in generated] == []
