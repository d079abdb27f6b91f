"""Bugs in subagents: their tools, modes and instances, immediate ones, attachments, queues and their end."""

from tests.planted.bug import Bug

_GRAPHS = "tests/behaviour/graphs"
_SUBAGENTS = (f"{_GRAPHS}/test_subagent_tools.py",)
_IMMEDIATE = (f"{_GRAPHS}/test_immediate.py",)
_MODES = (f"{_GRAPHS}/test_modes.py",)
_TERMINATE = (f"{_GRAPHS}/test_terminate.py",)

BUGS = [
    Bug(
        "an instance may have no name",
        "activities/tools/builtin/agents.py",
        'name: str = Field(min_length=1, max_length=63, description="What you call this instance.")',
        'name: str = Field(min_length=0, max_length=63, description="What you call this instance.")',
        _SUBAGENTS,
    ),
    Bug(
        "an optional subagent is there whatever its variable says",
        "domain/conversations/subagents.py",
        'variables.get(tool.optional, "").strip().lower() in ENABLED',
        'variables.get(tool.optional, "true").strip().lower() != "x"',
        (*_SUBAGENTS, *_IMMEDIATE),
    ),
    Bug(
        "a child that is explicit reports all the same",
        "activities/delegation/plan.py",
        "            reports=DeliveryMode.EXPLICIT if terms.explicit else DeliveryMode.WAKE,",
        "            reports=DeliveryMode.WAKE,",
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
        "domain/conversations/mailbox.py",
        "    while path in taken:",
        "    while not path and taken:",
        ("tests/unit/domain/test_conversations.py", f"{_GRAPHS}/test_attachments.py"),
    ),
    Bug(
        "an instance that is there is created again",
        "activities/delegation/spawn.py",
        "            if one.resumable and _is_there(facts.registry, one.name, name):",
        "            if one.resumable and _is_there([], one.name, name):",
        (f"{_GRAPHS}/test_immediate.py::test_existing_instance_is_not_created_again_by_a_second_handoff",),
    ),
    Bug(
        "a branch that is disabled can be created and sent messages",
        "activities/delegation/plan.py",
        "            for one in find_enabled(agents_above[-1], parent.variables)",
        "            for one in agents_above[-1].subagent_tools",
        (f"{_GRAPHS}/test_subagent_tools.py::test_optional_subagent_is_offered_only_if_its_variable_is_true",),
    ),
    Bug(
        "instances have no tool for messages",
        "activities/tools/offered.py",
        "        SUBAGENT_MESSAGE,\n",
        "",
        (
            f"{_GRAPHS}/test_subagent_tools.py::test_instances_have_tools_that_create_and_message_them_and_each_needs_a_name",
        ),
    ),
    Bug(
        "a parent waits for a child that is not waited for",
        "domain/conversations/subagents.py",
        "            blocking=tool.blocking,",
        "            blocking=True,",
        _MODES,
    ),
    Bug(
        "one that is not resumable keeps its address",
        "domain/conversations/subagents.py",
        "            resumable=tool.resumable is not None,",
        "            resumable=True,",
        (*_MODES, *_SUBAGENTS),
    ),
    Bug(
        "a parent's first message is for side A whatever its tool says",
        "activities/delegation/messages.py",
        "terms.receives_messages is ReceivingSide.SIDE_B else",
        "terms.receives_messages is None else",
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
        "messages to a busy thread are taken one by one, the newest first",
        "workflows/session/context.py",
        "        taken, self.state.inbox = self.state.inbox, []\n",
        "        taken, self.state.inbox = self.state.inbox[-1:], self.state.inbox[:-1]\n",
        _TERMINATE,
    ),
    Bug(
        "files that a child hands over stay with it",
        "activities/sessions/finish.py",
        "        if gained.keys() - known.keys():  # else an earlier attempt has copied them",
        "        if gained.keys() & known.keys():",
        (f"{_GRAPHS}/test_attachments.py::test_files_of_failures_and_results_arrive_before_the_message",),
    ),
    Bug(
        "files of a message to a working child are not copied",
        "store/conversations.py",
        "        if files is not None and files[1]:\n            workspace_id, manifest = files\n",
        "        if files is not None and not files:\n            workspace_id, manifest = files\n",
        (f"{_GRAPHS}/test_attachments.py::test_files_sent_to_a_running_subagent_arrive_before_the_message",),
    ),
    Bug(
        "the failure of a child that is explicit is reported",
        "store/functions/finish_session.sql",
        "OR (s.delivery = 'report' AND e.status = 'failed')) THEN",
        "OR e.status = 'failed') THEN",
        (
            f"{_GRAPHS}/test_subagent_tools.py"
            "::test_explicit_child_sends_only_its_own_messages_and_publishes_its_status",
        ),
    ),
]
