"""Messages to a conversation under load: each enters the context once only."""

import asyncio
from random import Random

from domain.ids import new_id
from tests.behaviour.conversations.talk import Talk, asked, async_task, chain, say
from tests.support.stack import Stack, eventually

SHORT = "[[script:say words=3 delay=0.02]]"


class Sender:
    """Sends messages to one conversation, each with a mark of its own."""

    def __init__(self, talk: Talk, seed: int) -> None:
        self.talk, self.random = talk, Random(seed)
        self.marks: list[str] = []

    async def steer(self) -> None:
        await asyncio.sleep(self.random.uniform(0, 2))
        mark = f"mark-{new_id()}"
        await self.talk.say(f"{mark} {SHORT}", if_busy="steer")
        self.marks.append(mark)

    async def fire(self) -> None:
        await asyncio.sleep(self.random.uniform(0.3, 2))
        mark = f"mark-{new_id()}"
        answer = await self.talk.try_fire(f"{mark} {SHORT}", if_busy=self.random.choice(["reject", "queue"]))
        assert answer.status_code in (202, 409, 422), answer.text
        if answer.status_code == 202:
            self.marks.append(mark)

    async def cancel(self) -> None:
        await asyncio.sleep(self.random.uniform(0.3, 2))
        if live := [row.id for row in await self.talk.sessions() if row.live and row.spawned_by is None]:
            await self.talk.stack.cancel(live[-1])

    async def problems(self) -> list[str]:
        """The marks that are not in exactly one node, or twice in one request."""

        async def unread() -> list[str]:
            nodes = [prompt for row in await self.talk.sessions() for prompt in await self.talk.prompts(row.id)]
            missing = [mark for mark in self.marks if not any(mark in node for node in nodes)]
            return [mark for mark in missing if not await self._is_cancelled(mark)]

        async def all_read() -> bool:
            return not await unread()

        await eventually(all_read, what=f"all messages of {self.talk.id} were read")
        await self.talk.rest()
        found: list[str] = []
        nodes = [prompt for row in await self.talk.sessions() for prompt in await self.talk.prompts(row.id)]
        for mark in self.marks:
            if (times := sum(node.count(mark) for node in nodes)) > 1:
                found.append(f"{mark} entered {times} times")
            for request in await asked(self.talk.stack, mark):
                if (times := str(request["messages"]).count(mark)) > 1:
                    found.append(f"{mark} is {times} times in a request")
        return found

    async def _is_cancelled(self, mark: str) -> bool:
        """Whether the session that was to read the message was cancelled before it did."""
        found = await self.talk.stack.pool.fetchval(
            """SELECT 1 FROM inbox i JOIN sessions s ON s.tenant = i.tenant AND s.id = i.taken_by
                WHERE i.conversation_id = $1 AND strpos(i.parts, $2) > 0 AND s.status = 'cancelled'""",
            self.talk.id,
            mark,
        )
        return found is not None


async def test_each_steer_enters_the_context_once(team: Stack) -> None:
    """The sessions are short, so that messages meet their beginnings and ends."""

    async def load(seed: int) -> list[str]:
        sender = Sender(await Talk.begin(team, SHORT), seed)
        await asyncio.gather(*(sender.steer() for _ in range(10)))
        return await sender.problems()

    assert sum(await asyncio.gather(*(load(seed) for seed in range(4))), []) == []


async def test_fires_messages_and_cancels_at_the_same_time_repeat_no_message(team: Stack) -> None:
    async def race(seed: int) -> list[str]:
        work = chain([async_task(say(f"Found {number}.")) for number in range(2)], last="Off.")
        sender = Sender(await Talk.begin(team, work), seed)
        steers, fires, cancels = [sender.steer() for _ in range(6)], [sender.fire() for _ in range(2)], sender.cancel()
        await asyncio.gather(*steers, *fires, cancels)
        return await sender.problems()

    assert sum(await asyncio.gather(*(race(seed) for seed in range(4))), []) == []
