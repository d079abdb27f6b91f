"""Bugs in rules of which one half is easily forgotten: ask beside deny, smaller beside larger, cancelled beside failed,
the faces beside the API."""

from tests.planted.bug import Bug

_STORE, _SQL = "tests/behaviour/store", "store/functions"
_ACCEPT, _BUDGETS = (f"{_STORE}/test_accept.py",), (f"{_STORE}/test_budgets.py",)
_RECIPIENTS = (f"{_STORE}/test_recipients.py",)

BUGS = [
    Bug(
        "retention keeps what came in through a face",
        f"{_SQL}/remove_content.sql",
        "UPDATE face_requests SET request = '{}' WHERE",
        "UPDATE face_requests SET request = request WHERE",
        ("tests/behaviour/record/test_retention.py::test_content_is_removed_whichever_way_it_came_in",),
    ),
    Bug(
        "a file that only an approval may read goes to a subagent",
        "activities/delegation/plan.py",
        "            if judged.action is not Action.ALLOW:",
        "            if judged.action is Action.DENY:",
        ("tests/behaviour/graphs/test_attachments.py::test_file_that_cannot_be_attached_starts_no_subagent",),
    ),
    Bug(
        "a caller's smaller budget does not hold in a mission",
        "store/missions.py",
        '"budget": admitted.within(acceptance.budget)}',
        '"budget": admitted}',
        (
            "tests/behaviour/missions/test_admission.py::test_turns_of_callers_and_other_schedules_in_a_mission_are_runs_of_it",
        ),
    ),
    Bug(
        "answers from before a reset are sent after it",
        f"{_SQL}/send_replies.sql",
        " AND v.generation = s.generation",
        "",
        _RECIPIENTS,
    ),
    Bug(
        "a key without the right to read sees the questions of a task",
        "api/faces/mcp/view.py",
        '"artifacts": [], "waiting_for": [], "cost_usd": None}',
        '"artifacts": [], "cost_usd": None}',
        ("tests/behaviour/faces/test_mcp_rights.py::test_key_without_read_sees_no_question_of_a_task",),
    ),
    Bug(
        "a budget of money that is spent refuses no session",
        f"{_SQL}/enter_budget.sql",
        "\n                WHEN b.cost_usd >= b.max_cost_usd THEN 'money' END;",
        " END;",
        _BUDGETS,
    ),
    Bug(
        "a message to one thread is read by another",
        f"{_SQL}/begin_queued.sql",
        "AND thread_id = s.thread_id AND taken_by IS NULL AND NOT wake",
        "AND taken_by IS NULL AND NOT wake",
        _ACCEPT,
    ),
    Bug(
        "a refused request is answered as if it had been accepted",
        f"{_SQL}/accept_session.sql",
        "        DELETE FROM idempotency WHERE tenant = s.tenant AND key = idem.key;",
        "        NULL;",
        _ACCEPT,
    ),
]
