"""Runs the longest files first, so that the test processes end together: a long file at the end would use only one
core.

The distribution by files (`scripts/test`) takes them in the order of the collection.
"""

import pytest

LONGEST = (
    *("behaviour/repositories/test_attempts.py", "faults/test_matrix.py", "behaviour/repositories/test_several.py"),
    *("behaviour/repositories/test_credentials.py", "behaviour/repositories/test_trees.py"),
    *("behaviour/docs/test_first_steps.py", "behaviour/console/test_errands.py", "behaviour/docs/test_docs.py"),
    *("behaviour/missions/test_missions.py", "behaviour/record/test_retention.py", "behaviour/docs/test_tutorial.py"),
    *("behaviour/console/test_task.py", "behaviour/sandbox/test_limits.py", "behaviour/schedules/test_heartbeat.py"),
    *("behaviour/console/test_inbox.py", "behaviour/client/test_wheel.py", "behaviour/graphs/test_variables.py"),
    *("behaviour/notifications/test_webhooks.py", "behaviour/api/test_fuzz.py"),
    *("behaviour/repositories/test_faults.py", "behaviour/cli/test_replay.py", "faults/test_accepted_meanwhile.py"),
    *("behaviour/conversations/test_async_task.py", "behaviour/conversations/test_machine.py"),
    *("behaviour/supervision/test_answer_where_asked.py", "behaviour/schedules/test_schedules.py"),
    *("behaviour/graphs/test_hooks.py", "faults/test_other_runs.py", "behaviour/workflows/test_continue_as_new.py"),
    *("behaviour/channels/test_addresses.py", "behaviour/graphs/test_subagent_tools.py"),
    *("behaviour/sandbox/test_confinement.py", "behaviour/channels/test_replies.py"),
    *("behaviour/channels/test_agents.py", "faults/test_disk_full.py", "behaviour/console/test_conversation.py"),
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    places = {config.rootpath / "tests" / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(LONGEST)))
