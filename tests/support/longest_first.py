"""Runs the longest files first, so that the test processes end together: a long file at the end would use only one
core.

The distribution by files (`scripts/test`) takes them in the order of the collection. The seconds come from a run in
three processes; only their order matters.
"""

import pytest

LONGEST = {
    "behaviour/docs/test_docs.py": 204,
    "faults/test_matrix.py": 161,
    "behaviour/api/test_fuzz.py": 87,
    "faults/test_other_runs.py": 71,
    "behaviour/api/test_rights.py": 61,
    "faults/test_other_runs_of_trees.py": 59,
    "behaviour/console/test_errands.py": 58,
    "behaviour/docs/test_first_steps.py": 53,
    "faults/test_servers_killed.py": 39,
    "behaviour/deploy/test_local.py": 39,
    "behaviour/bench/test_measures.py": 38,
    "behaviour/conversations/test_crashes.py": 38,
    "behaviour/workflows/test_continue_as_new.py": 37,
    "behaviour/conversations/test_renewal.py": 37,
    "behaviour/client/test_wheel.py": 37,
    "behaviour/missions/test_missions.py": 33,
    "behaviour/deploy/test_temporal_tls.py": 30,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tests = config.rootpath / "tests"
    if gone := [name for name in LONGEST if not (tests / name).is_file()]:
        raise pytest.UsageError(f"tests/support/longest_first.py names files that are gone: {', '.join(gone)}")
    longest = {tests / name: -seconds for name, seconds in LONGEST.items()}
    items.sort(key=lambda item: longest.get(item.path, 0))
