"""Bugs in graphs of agents: sides, handoffs, variables, handlers, checkpoints and hooks."""

from tests.planted.bug import Bug

_GRAPHS = "tests/behaviour/graphs"
_HOOKS = (f"{_GRAPHS}/test_hooks.py",)
_VARIABLES = (f"{_GRAPHS}/test_variables.py",)
_INVARIANTS = (f"{_GRAPHS}/test_bad_graphs.py",)
_SCOPE = ("tests/unit/domain/agents/test_variable_scope.py",)

BUGS = [
    Bug(
        "a success beats a failure",
        "domain/limits.py",
        """        (SideVerdict.FAIL_SESSION, side.session_fail, "fail"),
        (SideVerdict.STOP_SESSION, side.session_stop, "stop"),
""",
        """        (SideVerdict.STOP_SESSION, side.session_stop, "stop"),
        (SideVerdict.FAIL_SESSION, side.session_fail, "fail"),
""",
        ("tests/unit/domain/test_limits.py", f"{_GRAPHS}/test_dual.py"),
    ),
    Bug(
        "a side sees the other side's tool calls",
        "domain/messages.py",
        "    if node.side != side and not isinstance(body, UserBody):",
        "    if node.side != side and isinstance(body, ReplyBody):",
        ("tests/unit/domain/test_messages.py", f"{_GRAPHS}/test_dual.py"),
    ),
    Bug(
        "turns of the session are not counted",
        "domain/sessions/session_state.py",
        "        self.turns += 1\n",
        "        self.turns += 0\n",
        (f"{_GRAPHS}/test_dual.py", f"{_GRAPHS}/test_handlers.py", f"{_GRAPHS}/test_bad_graphs.py"),
        hangs=True,
    ),
    Bug(
        "a failing guard lets a call pass",
        "activities/hooks/run_hooks.py",
        "                    if call.point is HookPoint.BEFORE_TOOL:  # it may be a guard: fail closed",
        "                    if call.point is HookPoint.AFTER_TOOL:  # it may be a guard: fail closed",
        _HOOKS,
    ),
    Bug(
        "a value of the deployment wins over the tenant's",
        "domain/agents/variables.py",
        """        "tenant": _values_of(values, TENANT),
        "deployment": _values_of(values, DEPLOYMENT),
""",
        """        "deployment": _values_of(values, DEPLOYMENT),
        "tenant": _values_of(values, TENANT),
""",
        (*_SCOPE, *_VARIABLES),
    ),
    Bug(
        "a scoped variable is inherited",
        "domain/agents/variables.py",
        "    found = {name: value for name, value in values.items() if name not in scoped and _owner(name) != NOBODY}",
        "    found = {name: value for name, value in values.items() if _owner(name) != NOBODY}",
        (*_SCOPE, *_VARIABLES),
    ),
    Bug(
        "a value that looks like a sealed one is taken",
        "domain/agents/variables.py",
        "        if is_sealed(value):  #",
        "        if not name and is_sealed(value):  #",
        ("tests/unit/domain/test_sealing.py",),
    ),
    Bug(
        "a handoff leaves later turns with the former agent",
        "activities/delegation/settle.py",
        "call.index, call.name, CallState.OK, describe_handover(to.agent.name), [event], handed_to=to",
        "call.index, call.name, CallState.OK, describe_handover(to.agent.name), [event]",
        ("tests/behaviour/conversations/test_handoff.py",),
    ),
    Bug(
        "calls of a side run at the same time",
        "workflows/session/loop.py",
        "act(session, line, reply, run_line, last=_ending_tools(side))",
        "act(session, line, reply, run_line)",
        _INVARIANTS,
    ),
    Bug(
        "a hook that blocks stalls its worker",
        "activities/hooks/run_hooks.py",
        "await run_apart(_answer, hook, moment, at_home(state))",
        "await _answer(hook, moment, state)",
        (f"{_GRAPHS}/test_hooks.py::test_hook_that_blocks_does_not_stall_other_sessions",),
    ),
    Bug(
        "a stop loses a reply that is being stored",
        "activities/attempt.py",
        "        return await task  # a second cancellation reaches it",
        "        task.cancel()\n        raise",
        (
            "tests/behaviour/activities/test_alone.py"
            "::test_stop_loses_neither_a_reply_nor_a_result_that_is_being_stored",
        ),
    ),
    Bug(
        "two agents that are changed at once close a circle",
        "store/agents.py",
        "            await check(await _list_known(connection, owner))\n        if made_from",
        "            pass\n        if made_from",
        (
            f"{_GRAPHS}/test_bad_graphs.py"
            "::test_two_changes_at_once_cannot_close_a_circle_or_leave_a_reference_to_nobody",
        ),
    ),
]
