"""Runs the longest files first, so that the test processes end together: a long file at the end would use only one
core.

The distribution by files (`scripts/test`) takes them in the order of the collection. The seconds come from a run in
three processes; only their order matters.
"""

import pytest

LONGEST = {
    "behaviour/docs/test_docs.py": 143,
    "faults/test_matrix.py": 95,
    "behaviour/channels/test_addresses.py": 75,
    "behaviour/api/test_fuzz.py": 65,
    "behaviour/workflows/test_continue_as_new.py": 60,
    "behaviour/bench/test_measures.py": 55,
    "faults/test_accepted_meanwhile.py": 55,
    "behaviour/sandbox/test_limits.py": 52,
    "faults/test_other_runs.py": 50,
    "faults/test_servers_killed.py": 45,
    "behaviour/deploy/test_temporal_tls.py": 44,
    "behaviour/channels/test_replies.py": 44,
    "faults/test_superseded_attempts.py": 42,
    "behaviour/docs/test_first_steps.py": 41,
    "behaviour/schedules/test_schedules.py": 40,
    "faults/test_other_runs_of_trees.py": 40,
    "behaviour/graphs/test_variables.py": 39,
    "behaviour/supervision/test_answer_where_asked.py": 37,
    "behaviour/schedules/test_heartbeat.py": 35,
    "behaviour/client/test_wheel.py": 32,
    "behaviour/console/test_errands.py": 32,
    "behaviour/faces/test_responses.py": 30,
    "behaviour/cli/test_replay.py": 30,
    "behaviour/api/test_unstarted.py": 30,
    "behaviour/api/test_rights.py": 28,
    "faults/test_questions_killed.py": 25,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tests = config.rootpath / "tests"
    if gone := [name for name in LONGEST if not (tests / name).is_file()]:
        raise pytest.UsageError(f"tests/support/longest_first.py names files that are gone: {', '.join(gone)}")
    longest = {tests / name: -seconds for name, seconds in LONGEST.items()}
    items.sort(key=lambda item: longest.get(item.path, 0))
