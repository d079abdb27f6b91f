"""The activity that opens the session of a fire, also when it is repeated or another session was faster."""

from temporalio.testing import ActivityEnvironment

from activities.sessions.open import OpenSessions
from domain.conversations.requests import OpenBatch, Opened, OpenSession
from domain.ids import new_id
from domain.sealing import KeyRing
from domain.sessions.new_session import NewSession, Trigger
from store.variables import SharedVariables
from tests.behaviour.conversations.talk import Talk, async_task, chain, say
from tests.support.stack import Stack


async def with_outcomes(stack: Stack) -> tuple[Talk, list[str]]:
    talk = await Talk.done(stack, chain([async_task(say(f"Part {n}.")) for n in range(3)], last="Off."))
    await talk.posted(3)
    return talk, [message.message_id for message in await talk.mail()]


async def opening(talk: Talk) -> OpenSession:
    session = NewSession.continuing(await talk.session(talk.id)).model_copy(update={"trigger": Trigger.FIRE})
    return OpenSession(session_id=new_id(), thread_id=talk.id, session=session, fires=True)


async def opened(talk: Talk, one: OpenSession) -> Opened:
    activity = OpenSessions(talk.stack.pool, SharedVariables(KeyRing(), {}))
    batch = OpenBatch(tenant="default", conversation_id=talk.id, sessions=[one.model_copy(deep=True)])
    [answer] = (await ActivityEnvironment().run(activity.open_sessions, batch)).sessions
    return answer


async def test_a_repetition_gets_the_same_answer(team: Stack) -> None:
    talk, held = await with_outcomes(team)
    one = await opening(talk)
    for answer in (await opened(talk, one), await opened(talk, one)):
        assert answer.start is not None and answer.refused is None
        assert answer.mail == held
    assert [message.delivered_to for message in await talk.mail()] == [one.session_id] * 3


async def test_another_fire_finds_nothing(team: Stack) -> None:
    talk, _ = await with_outcomes(team)
    first, second = await opening(talk), await opening(talk)
    await opened(talk, first)
    assert (await opened(talk, second)).refused == "mailbox_empty"
    assert [message.delivered_to for message in await talk.mail()] == [first.session_id] * 3
