"""Bugs in graphs of agents: sides, handoffs, subagents, variables, attachments and hooks."""

from tests.planted.bug import Bug

_GRAPHS = "tests/behaviour/graphs"
_HOOKS = (f"{_GRAPHS}/test_hooks.py",)
_VARIABLES = (f"{_GRAPHS}/test_variables.py",)
_SUBAGENTS = (f"{_GRAPHS}/test_subagent_tools.py",)
_IMMEDIATE = (f"{_GRAPHS}/test_immediate.py",)
_SCOPE = ("tests/unit/domain/agents/test_variable_scope.py",)
_SIDES = ("tests/unit/agents/test_sides.py",)

BUGS = [
    Bug(
        "a success beats a failure",
        "domain/limits/side_rules.py",
        """        (SideVerdict.FAIL_SESSION, side.session_fail, "fail"),
        (SideVerdict.STOP_SESSION, side.session_stop, "stop"),
""",
        """        (SideVerdict.STOP_SESSION, side.session_stop, "stop"),
        (SideVerdict.FAIL_SESSION, side.session_fail, "fail"),
""",
        ("tests/unit/domain/limits", f"{_GRAPHS}/test_dual.py"),
    ),
    Bug(
        "the limit of steps is looked at before a response without calls",
        "domain/limits/side_rules.py",
        "    ends_turn = False\n",
        "    ends_turn = False\n    if side.max_steps is not None and steps >= side.max_steps:\n"
        "        return SideDecision(SideVerdict.STEP_LIMIT)\n",
        ("tests/unit/domain/limits",),
    ),
    Bug(
        "a binding whose call failed ends the session",
        "workflows/session/sides.py",
        'succeeded = {outcome.index for outcome in outcomes if outcome.state == "ok"}',
        "succeeded = {outcome.index for outcome in outcomes}",
        (f"{_GRAPHS}/test_dual.py",),
    ),
    Bug(
        "a side sees the other side's tool calls",
        "domain/messages.py",
        "    if node.side != side and not isinstance(body, UserBody):",
        "    if node.side != side and isinstance(body, ReplyBody):",
        ("tests/unit/domain/test_two_views.py", f"{_GRAPHS}/test_dual.py"),
    ),
    Bug(
        "the other side reads the text beside a stop tool",
        "domain/messages.py",
        "    return (said or text_of(node)).strip()",
        "    return (text_of(node) or said or '').strip()",
        ("tests/unit/domain/test_two_views.py", f"{_GRAPHS}/test_dual.py"),
    ),
    Bug(
        "turns of the session are not counted",
        "domain/sessions/session_state.py",
        "        self.turns += 1\n",
        "        self.turns += 0\n",
        (f"{_GRAPHS}/test_dual.py", f"{_GRAPHS}/test_handlers.py", f"{_GRAPHS}/test_invariants.py"),
        hangs=True,
    ),
    Bug(
        "a filter takes a call from its result",
        "domain/messages.py",
        "            gone |= {reply, results}",
        "            gone.discard(results)",
        _HOOKS,
    ),
    Bug(
        "the system prompt is shown as it was before its hooks",
        "activities/hooks/inner_hooks.py",
        "            return SystemMessage(**common, text=text)\n",
        '            return SystemMessage(**common, text="")\n',
        _HOOKS,
    ),
    Bug(
        "what a hook makes of a reply is not stored",
        "activities/model/call_model.py",
        "                turn.replace_text(said)\n",
        "                turn.text = said\n",
        _HOOKS,
    ),
    Bug(
        "a failing guard lets a call pass",
        "activities/hooks/run_hooks.py",
        "                    if call.point is HookPoint.BEFORE_TOOL:  # it may be there to guard",
        "                    if call.point is HookPoint.AFTER_TOOL:  # it may be there to guard",
        _HOOKS,
    ),
    Bug(
        "an agent's hooks run beside its prompt's",
        "domain/agents/definition.py",
        '"hooks": prompt.hooks or self.hooks,',
        '"hooks": [*prompt.hooks, *self.hooks],',
        (*_HOOKS, *_SIDES),
    ),
    Bug(
        "a value of the deployment wins over the tenant's",
        "domain/agents/variable_scope.py",
        """        "tenant": _held(values, TENANT),
        "deployment": _held(values, DEPLOYMENT),
""",
        """        "deployment": _held(values, DEPLOYMENT),
        "tenant": _held(values, TENANT),
""",
        (*_SCOPE, *_VARIABLES),
    ),
    Bug(
        "later turns keep a value that the tenant removed",
        "api/submission/tools_and_variables.py",
        "    before = {**without_shared(before), **(await _shared",
        "    before = {**before, **(await _shared",
        _VARIABLES,
    ),
    Bug(
        "a secret of the tenant is a text where an agent calls it one",
        "api/submission/tools_and_variables.py",
        "    return shared({**secrets, **seal(texts)}, seal(deployments))",
        "    unseal = call.services.keys.unseal\n"
        '    texts |= {name: unseal(one, call.tenant, "variable", name) for name, one in secrets.items()}\n'
        "    return shared(seal(texts), seal(deployments))",
        _VARIABLES,
    ),
    Bug(
        "a scoped variable is inherited",
        "domain/agents/variable_scope.py",
        "    found = {name: value for name, value in _named(kept(values, graph)).items() if name not in scoped}",
        "    found = {name: value for name, value in _named(kept(values, graph)).items() if name or scoped}",
        (*_SCOPE, *_VARIABLES),
    ),
    Bug(
        "a name that nobody declares is inherited",
        "domain/agents/variable_scope.py",
        "    return {name: value for name, value in values.items() if not name.startswith(own)}",
        "    return {name: value for name, value in values.items() if name or own}",
        (*_SCOPE, *_VARIABLES),
    ),
    Bug(
        "a value that looks like a sealed one is taken",
        "domain/agents/secret_variables.py",
        "        if is_sealed(value):  #",
        "        if not name and is_sealed(value):  #",
        ("tests/unit/domain/test_sealing.py",),
    ),
    Bug(
        "an instance may have no name",
        "activities/tools/builtin/subagent_create.py",
        "name: str = Field(min_length=1",
        "name: str = Field(min_length=0",
        _SUBAGENTS,
    ),
    Bug(
        "an optional subagent is there whatever its variable says",
        "domain/conversations/subagent.py",
        'variables.get(tool.optional, "").strip().lower() in ENABLED',
        'variables.get(tool.optional, "true").strip().lower() != "x"',
        (*_SUBAGENTS, *_IMMEDIATE),
    ),
    Bug(
        "a child that is explicit reports all the same",
        "activities/delegation/subagent_plan.py",
        "            delivery=DeliveryMode.EXPLICIT if terms.explicit else DeliveryMode.WAKE,",
        "            delivery=DeliveryMode.WAKE,",
        _SUBAGENTS,
    ),
    Bug(
        "the parent's model is not shown its children",
        "activities/model/call_model.py",
        '        if facts.registry and call.line == "main":',
        '        if facts.registry and call.line == "none":',
        _SUBAGENTS,
    ),
    Bug(
        "the second file of a name overwrites the first",
        "domain/conversations/attachments.py",
        "    while path in taken:",
        "    while not path and taken:",
        ("tests/unit/domain/conversations", f"{_GRAPHS}/test_attachments.py"),
    ),
    Bug(
        "an unknown field hides what else is wrong",
        "agents/validation.py",
        "    if not removed:\n",
        "    if problems:\n",
        (*_SIDES, f"{_GRAPHS}/test_bad_graphs.py"),
    ),
    Bug(
        "a handoff leaves later turns with the former agent",
        "activities/delegation/hand_over.py",
        "call.index, call.name, CallState.OK, handed_over(to.agent.name), [event], handed_to=to",
        "call.index, call.name, CallState.OK, handed_over(to.agent.name), [event]",
        ("tests/behaviour/conversations/test_handoff.py",),
    ),
    Bug(
        "a model's summary does not say which side was asked",
        "workflows/activity_calls.py",
        '    speaker = f" · {call.speaker}" if call.speaker else ""',
        '    speaker = ""',
        (f"{_GRAPHS}/test_sample.py",),
    ),
]
