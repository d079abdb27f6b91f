"""Bugs in subagents: their tools, modes and instances, immediate ones, attachments, queues and their end."""

from tests.planted.bug import Bug

_GRAPHS = "tests/behaviour/graphs"
_SUBAGENTS = (f"{_GRAPHS}/test_subagent_tools.py",)
_MODES = (f"{_GRAPHS}/test_modes.py",)
_TERMINATE = (f"{_GRAPHS}/test_terminate.py",)

BUGS = [
    Bug(
        "a child that is explicit reports all the same",
        "activities/delegation/plan.py",
        "            reports=DeliveryMode.EXPLICIT if terms.explicit else DeliveryMode.WAKE,",
        "            reports=DeliveryMode.WAKE,",
        _SUBAGENTS,
    ),
    Bug(
        "an instance that is there is created again",
        "activities/delegation/spawn.py",
        "            if one.resumable and _is_there(facts.registry, one.name, name):",
        "            if one.resumable and _is_there([], one.name, name):",
        (f"{_GRAPHS}/test_immediate.py::test_existing_instance_is_not_created_again_by_a_second_handoff",),
    ),
    Bug(
        "a parent waits for a child that is not waited for",
        "domain/conversations/subagents.py",
        "            blocking=tool.blocking,",
        "            blocking=True,",
        _MODES,
    ),
    Bug(
        "a terminated instance can be sent messages",
        "activities/delegation/plan.py",
        "        if await threads.is_terminated(self._pool, call.ref.tenant, found.thread_id):",
        "        if not found and await threads.is_terminated(self._pool, call.ref.tenant, found.thread_id):",
        _TERMINATE,
    ),
    Bug(
        "what runs in a terminated thread is not stopped",
        "api/routes/conversations.py",
        "    await control.stop_sessions(call, unfinished, Stop(Reason.TERMINATED, tree=True))\n",
        "",
        _TERMINATE,
    ),
    Bug(
        "files that a child hands over stay with it",
        "activities/sessions/finish.py",
        "        if gained.keys() - known.keys():  # else an earlier attempt has copied them",
        "        if gained.keys() & known.keys():",
        (f"{_GRAPHS}/test_attachments.py::test_files_of_failures_and_results_arrive_before_the_message",),
    ),
]
