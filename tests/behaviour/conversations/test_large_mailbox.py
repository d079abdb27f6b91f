"""Mailboxes with more outcomes than the state of a conversation keeps."""

from temporalio.client import WorkflowExecutionStatus

from domain.conversations.requests import MOST_PENDING
from domain.ids import conversation_workflow_id
from domain.wire import MAILBOX
from tests.behaviour.conversations.talk import BROKEN, Talk, async_task, chain, say
from tests.support.stack import Stack, eventually

OUTCOMES = 2_500  # with previews of wide characters, more than Temporal accepts in one signal


async def copy_outcome(talk: Talk) -> None:
    """Write copies of the only outcome directly, because so many real sessions would take minutes."""
    [child] = await talk.children()
    for copy in (
        """INSERT INTO sessions SELECT (jsonb_populate_record(s, jsonb_build_object(
                  'id', s.id || n, 'thread_id', s.id || n, 'title', repeat('情', 100), 'output', repeat('報', 200)))).*
             FROM sessions s, generate_series(2, $2::int) n WHERE s.id = $1""",
        """INSERT INTO mailbox (tenant, message_id, conversation_id, thread_id, source_session_id, source_type,
                                subagent_name)
           SELECT tenant, message_id || n, conversation_id, thread_id, source_session_id || n, source_type,
                  subagent_name
             FROM mailbox m, generate_series(2, $2::int) n WHERE m.source_session_id = $1""",
    ):
        await talk.stack.pool.execute(copy, child.id, OUTCOMES)


async def test_a_fire_takes_all_outcomes_and_a_failed_one_returns_them(team: Stack) -> None:
    talk = await Talk.done(team, chain([async_task(say("Done."))], last="Off."))
    await talk.posted(1)
    await copy_outcome(talk)

    failed = await talk.fire(BROKEN)

    async def closed() -> bool:
        described = await team.session(failed.id).describe()
        return described.status is WorkflowExecutionStatus.COMPLETED

    await eventually(closed, what="the end of the session that failed")
    assert (await talk.shown())["mailbox"]["pending_count"] == OUTCOMES
    state = team.client.get_workflow_handle(conversation_workflow_id(talk.id))
    assert len(await state.query(MAILBOX)) == MOST_PENDING

    fired = await talk.fire()
    assert (await talk.shown())["mailbox"]["pending_count"] == 0
    [prompt] = await talk.prompts(fired.id)
    assert prompt.count("[completed] (session: ") == OUTCOMES
