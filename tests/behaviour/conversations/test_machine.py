"""Random walks through the states of a conversation on the real stack; the worker is killed in between."""

import asyncio
import os
import random
from collections import Counter

import pytest

from tests.behaviour.conversations.talk import BROKEN, HANG, Call, Talk, async_delegate, async_task, chain, say, slow
from tests.support.stack import Stack, eventually

WALKS, STEPS = 4, 5
SEED = 5000  # the same walk in every run; ERRAND_TEST_SEED selects another one
CHILDREN = (say("Done."), BROKEN, HANG, slow(0.5), slow(1.5))


class Walk:
    """One conversation, and the actions that may happen in it."""

    def __init__(self, talk: Talk, choice: random.Random) -> None:
        self.talk = talk
        self.choice = choice

    async def spawn(self) -> None:
        calls: list[Call] = []
        for _ in range(self.choice.randint(1, 3)):
            prompt = self.choice.choice(CHILDREN)
            named = self.choice.random() < 0.3
            calls.append(
                async_delegate(self.choice.choice("ab"), prompt, agent="helper") if named else async_task(prompt)
            )
        await self.talk.say(chain(calls, text="Go.", last="Off."), if_busy="queue")

    async def proceed(self) -> None:
        await self.talk.say(say("Going on."), if_busy=self.choice.choice(["queue", "steer"]))

    async def fire(self) -> None:
        prompt = self.choice.choice([None, "And?", "[[fault:400]]"])
        answer = await self.talk.try_fire(prompt, if_busy=self.choice.choice(["queue", "reject"]))
        assert answer.status_code in (202, 409, 422, 503), answer.text

    async def interrupt(self) -> None:
        live = [row.id for row in await self.talk.sessions() if row.live and not row.status.terminal]
        if live:
            await self.talk.stack.http.post(f"/tasks/{self.choice.choice(live)}/interrupt")

    async def pause(self) -> None:
        await asyncio.sleep(self.choice.random())

    async def steps(self) -> None:
        actions = (self.spawn, self.spawn, self.proceed, self.fire, self.fire, self.interrupt, self.pause)
        for _ in range(STEPS):
            await self.choice.choice(actions)()

    async def settle(self) -> None:
        """Release hanging calls, then deliver the remaining outcomes."""

        async def still() -> bool:
            await self.talk.stack.http.post(f"/conversations/{self.talk.id}/interrupt")
            return not [row for row in await self.talk.sessions() if not row.status.terminal]

        await eventually(still, pause=0.5, what=f"{self.talk.id} rests")

        async def delivered() -> bool:
            if await self.talk.mail(pending_only=True):
                await self.talk.try_fire("The rest.", if_busy="queue")
            # read before the sessions, so that they include whichever session consumes it later
            before = await self.talk.mail()
            rest = all(row.status.terminal for row in await self.talk.sessions())
            # compare again: a consumer that has just ended without an answer has returned its messages
            return rest and all(message.delivered_to for message in before) and before == await self.talk.mail()

        await eventually(delivered, pause=0.5, what=f"everything of {self.talk.id} is delivered")

    async def check(self) -> None:
        rows = {row.id: row for row in await self.talk.sessions()}
        children = [row for row in rows.values() if row.spawned_by]
        mail = {message.source_session_id: message for message in await self.talk.mail()}
        assert set(mail) == {row.id for row in children}, "each outcome exists once"
        received = Counter(await self.talk.delivered_sources())
        assert set(received) == set(mail) and set(received.values()) <= {1}, "each is delivered once"
        for child in children:
            recipient = rows[mail[child.id].delivered_to or ""]
            assert recipient.thread_id == rows[child.spawned_by or ""].thread_id


@pytest.mark.proves("S0-27", "S0-40", "F-06")
async def test_conversation_delivers_each_outcome_once_and_to_its_spawner(team: Stack) -> None:
    seed = int(os.environ.get("ERRAND_TEST_SEED", SEED))
    walks = []
    for number in range(WALKS):
        talk = await Talk.done(team, say("Hello."), "waker" if number % 2 else "lead")
        walks.append(Walk(talk, random.Random(seed + number)))
    try:
        under_way = asyncio.gather(*(walk.steps() for walk in walks))
        await asyncio.sleep(2)
        await team.back("worker", await team.kill("worker"))
        await under_way
        await asyncio.gather(*(walk.settle() for walk in walks))
        for walk in walks:
            await walk.check()
    except Exception as error:
        error.add_note(f"ERRAND_TEST_SEED={seed}")
        raise
