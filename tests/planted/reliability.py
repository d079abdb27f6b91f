"""Bugs in the code that prevents sessions, effects and messages from being lost or repeated."""

from tests.planted.bug import Bug

_STORE = "tests/behaviour/store"
_RUNS = (f"{_STORE}/test_runs.py", "tests/faults/test_other_runs.py")
_RENEWAL = ("tests/behaviour/workflows/test_continue_as_new.py",)

BUGS = [
    Bug(
        "a lost context locks its conversation before the sessions in it",
        "store/resets.py",
        "AND (id = $3 OR status IN ('submitted', 'working', 'input_required')) ORDER BY id FOR UPDATE",
        "AND id = $3 FOR UPDATE",
        ("tests/behaviour/store/test_lock_order.py",),
    ),
    Bug(
        "a run that lost its session writes on",
        "store/functions/check_run.sql",
        "IF mine <> run THEN",
        "IF mine IS NULL AND run IS NULL THEN",
        _RUNS,
    ),
    Bug(
        "a call begins in a session that has ended",
        "store/functions/check_run.sql",
        "IF active AND how IN ('completed', 'failed', 'cancelled') THEN",
        "IF active AND how IS NULL THEN",
        _RUNS,
    ),
    Bug(
        "an interrupted `once` call is repeated",
        "store/functions/claim_tool.sql",
        "IF c.effect = 'once' AND",
        "IF c.effect = 'twice' AND",
        (f"{_STORE}/test_tool_calls.py",),
    ),
    Bug(
        "a superseded attempt writes its result",
        "store/functions/commit_tool.sql",
        "AND holder = n.holder AND attempt = n.attempt AND state = 'started'",
        "AND state = 'started'",
        (f"{_STORE}/test_tool_calls.py",),
    ),
    Bug(
        "another run makes the calls of a reply a second time",
        "store/runs.py",
        "    return None if reply.interrupted else reply",
        "    return None",
        _RUNS[:1],
    ),
    Bug(
        "a message that is signalled again is taken again",
        "workflows/session/context.py",
        "if message_id not in self.state.seen_messages:",
        "if message_id not in self.state.inbox:",
        (f"{_RENEWAL[0]}::test_message_that_is_signalled_again_is_taken_once",),
    ),
    Bug(
        "a renewed session forgets what waits in its inbox",
        "workflows/session/workflow.py",
        'workflow.continue_as_new(start.model_copy(update={"carried": self.context.state}))',
        "self.context.state.inbox = []\n"
        '                workflow.continue_as_new(start.model_copy(update={"carried": self.context.state}))',
        _RENEWAL,
    ),
    Bug(
        "a message is read again",
        "store/functions/begin_step.sql",
        "AND i.id = w.id AND NOT i.entered",
        "AND i.id = w.id",
        (f"{_STORE}/test_runs.py",),
    ),
    Bug(
        "a renewed conversation forgets the outcomes that wait",
        "workflows/conversation/workflow.py",
        "carried = self.state.carry_over(workflow.now())",
        "carried = self.state.carry_over(workflow.now())\n                    carried.pending = []",
        _RENEWAL,
    ),
    Bug(
        "a session that was cancelled may still complete",
        "store/functions/finish_session.sql",
        "IF s.cancel_requested IS NOT NULL AND e.status <> 'cancelled' THEN",
        "IF s.cancel_requested IS NOT NULL AND e.status IS NULL THEN",
        (f"{_STORE}/test_sessions.py",),
    ),
    Bug(
        "outcomes of a session that committed nothing are lost",
        "store/functions/finish_session.sql",
        "UPDATE mailbox m SET delivered_to = NULL, given_back_by = s.id",
        "UPDATE mailbox m SET given_back_by = s.id",
        ("tests/behaviour/conversations/test_fire.py", "tests/behaviour/conversations/test_mailbox.py"),
    ),
    Bug(
        "mail is claimed twice",
        "store/functions/accept_session.sql",
        "IF n <> cardinality(a.mail) THEN",
        "IF n > cardinality(a.mail) THEN",
        (f"{_STORE}/test_accept.py",),
    ),
    Bug(
        "a child has more tokens than its parent has left",
        "activities/delegation/plan.py",
        "tokens = min(tokens or left, left)",
        "tokens = tokens or left",
        ("tests/unit/activities/delegation/test_child_limits.py",),
    ),
    Bug(
        "loops of inline delegates are not noticed",
        "workflows/session/loop.py",
        "line.step\n        if reply.calls and repeats_itself(",
        "line.step\n        if line.is_main and reply.calls and repeats_itself(",
        ("tests/behaviour/limits/test_loops.py",),
    ),
    Bug(
        "a repeat is handled while another process handles the request",
        "store/idempotency.py",
        "WHERE l.until < now() OR l.holder = EXCLUDED.holder",
        "WHERE true",
        (
            "tests/behaviour/conversations/test_crashes.py"
            "::test_messages_that_are_repeated_while_no_worker_answers_are_read_once",
        ),
    ),
]
