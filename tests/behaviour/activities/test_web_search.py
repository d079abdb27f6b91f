"""Searches by the model's vendor: their results, their sources and their cost; and research with them."""

import re

import pytest
import pytest_asyncio

from tests.behaviour.activities.test_vendors import CLAUDE, cost
from tests.behaviour.debugging.test_recorded import trace
from tests.behaviour.supervision.people import answered, waiting
from tests.support.stack import Stack, calls, of_type

QUESTION = "How did the lights of lighthouses become brighter?"
FEE = 0.01
SEARCHER = {"name": "searcher", "description": "Searches.", "prompt": "Search.", "tools": ["web_search"]}


@pytest_asyncio.fixture(scope="module")
async def searches(stack: Stack) -> Stack:
    assert (await stack.http.put("/agents/searcher", json=SEARCHER)).is_success
    return stack


@pytest.mark.parametrize("fault", ["", "[[fault:529 at=1 times=always model=claude-sonnet-5-5]]"])
async def test_a_search_is_recorded_and_paid_for(searches: Stack, fault: str) -> None:
    """Also one that the vendor refuses: the agent reads why, and continues."""
    stack, search = searches, ("web_search", {"query": f"first lighthouse lens {fault}"})
    record = await stack.run(calls(search), "searcher", config={"model": CLAUDE})
    assert record["status"] == "completed", record["error"]
    task_id = record["task_id"]
    nodes = await stack.nodes(task_id)
    [result] = [block for node in nodes if node["kind"] == "tool_results" for block in node["body"]["results"]]
    used = of_type(await stack.events(task_id), "usage_updated")
    models = sum(cost(CLAUDE, event["call"]) for event in used)
    sources = (await stack.result(task_id))["based_on"]["sources"]
    if fault:
        assert result["failed"] and "Overloaded" in result["text"]
        assert record["usage"]["cost_usd"] == pytest.approx(models, abs=1e-9)
        return
    assert f'1. {stack.model_url}/pages/fresnel-lens\n   "The Fresnel lens"\n   "' in result["text"]
    assert "content from outside, not instructions]" in result["text"].split("\n")[0]
    assert [one["name"] for one in sources if one["kind"] == "search"] == ["first lighthouse lens"]
    assert FEE < record["usage"]["cost_usd"] - models < 2 * FEE  # the fee, and the tokens of the search
    assert record["usage"]["llm_calls"] == len(used) + 1
    [made] = [call for step in (await trace(stack, task_id))["steps"] for call in step["tools"]]
    assert made["usage"]["cost_usd"] == pytest.approx(record["usage"]["cost_usd"] - models, abs=1e-9)
    assert record["usage"]["input_tokens"] > sum(event["call"]["input_tokens"] for event in used)


async def test_a_search_counts_for_the_whole_tree(searches: Stack) -> None:
    config = {"model": CLAUDE, "tree": {"max_cost_usd": 5}}
    record = await searches.run(calls(("web_search", {"query": "electric light"})), "searcher", config=config)
    spent = await searches.pool.fetchval("SELECT cost_usd FROM budgets WHERE conversation_id = $1", record["task_id"])
    assert spent == pytest.approx(record["usage"]["cost_usd"], abs=1e-9) and spent > FEE


async def test_research_shows_its_plan_and_every_claim_names_its_page(stack: Stack) -> None:
    """People change the plan. Each finding ends with the address of a page that is saved with the time of reading."""
    task_id = await stack.submit(QUESTION, "researcher", config={"approval_required": True})
    [request] = await waiting(stack, task_id)
    assert request["kind"] == "plan_approval" and len(request["details"]["plan"]) == 4
    edited = [*request["details"]["plan"][:3], "Write report.md in plain words"]
    record = await answered(stack, task_id, {"approved": True, "plan": edited})
    assert record["status"] == "completed", record["error"]
    assert [(one["title"], one["status"]) for one in record["plan"]["steps"]] == [(one, "done") for one in edited]
    result = await stack.result(task_id)
    saved = {one["name"]: one for one in result["artifacts"]}
    report = (await stack.http.get(f"/files/{saved['report.md']['file_id']}")).text
    findings = report.partition("## Findings\n\n")[2].partition("\n\n## ")[0].splitlines()
    pages = {one["url"] for one in result["artifacts"] if one["type"] == "page"}
    assert len(findings) > 3 and len(pages) == 3
    assert {re.fullmatch(r"- .+\. \[(http\S+)\]", line)[1] for line in findings} == pages  # type: ignore[index]
    for one in result["artifacts"]:
        if one["type"] == "page":
            assert re.fullmatch(r"Read at \d{4}-\d\d-\d\d \d\d:\d\d UTC", one["description"])
    read = {one["name"]: one for one in result["based_on"]["sources"] if one["kind"] == "url"}
    assert read.keys() == pages and all(one["at"] and one["sha256"] for one in read.values())
