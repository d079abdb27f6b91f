"""Runs the longest files first, so that the test processes end together: a long file at the end would use only one
core.

The distribution by files (`scripts/test`) takes them in the order of the collection. The seconds come from a
run on two busy cores; only their order matters.
"""

import pytest

LONGEST = {
    "behaviour/docs/test_docs.py": 93,
    "faults/test_matrix.py": 86,
    "behaviour/docs/test_tutorial.py": 83,
    "faults/test_accepted_meanwhile.py": 30,
    "behaviour/cli/test_demos.py": 38,
    "behaviour/repositories/test_faults.py": 35,
    "behaviour/channels/test_addresses.py": 34,
    "behaviour/faces/test_tool_loop.py": 33,
    "behaviour/repositories/test_pull_requests.py": 33,
    "behaviour/bench/test_measures.py": 33,
    "behaviour/faces/test_mcp.py": 32,
    "behaviour/end_to_end/test_everything_killed.py": 32,
    "behaviour/cli/test_end_to_end.py": 30,
    "behaviour/conversations/test_crashes.py": 29,
    "behaviour/repositories/test_commands.py": 29,
    "behaviour/supervision/test_states.py": 28,
    "faults/test_other_runs.py": 28,
    "behaviour/workflows/test_continue_as_new.py": 28,
    "behaviour/api/test_fuzz.py": 27,
    "behaviour/api/test_rights.py": 27,
    "behaviour/schedules/test_schedules.py": 27,
    "behaviour/deploy/test_local.py": 26,
    "behaviour/activities/test_mcp_servers.py": 26,
    "behaviour/limits/test_raised_budgets.py": 25,
    "faults/test_dead_workers.py": 24,
    "behaviour/channels/test_agents.py": 23,
    "behaviour/workflows/test_steps.py": 23,
    "behaviour/channels/test_replies.py": 23,
    "behaviour/cli/test_ids.py": 23,
    "faults/test_servers_killed.py": 23,
    "behaviour/workflows/test_stop.py": 22,
    "behaviour/channels/test_slack.py": 21,
    "behaviour/api/test_waiting_bound.py": 21,
    "behaviour/console/test_errands.py": 21,
    "behaviour/sandbox/test_mcp_programs.py": 21,
    "behaviour/docs/test_first_steps.py": 21,
    "faults/test_disk_full.py": 21,
    "behaviour/suite/test_second_try.py": 20,
    "behaviour/triggers/test_triggers.py": 20,
    "behaviour/console/test_views.py": 20,
    "faults/test_other_runs_of_trees.py": 20,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tests = config.rootpath / "tests"
    if gone := [name for name in LONGEST if not (tests / name).is_file()]:
        raise pytest.UsageError(f"tests/support/longest_first.py names files that are gone: {', '.join(gone)}")
    longest = {tests / name: -seconds for name, seconds in LONGEST.items()}
    items.sort(key=lambda item: longest.get(item.path, 0))
