"""Messages to a conversation under load: each enters the context once only."""

import asyncio
from random import Random

from domain.ids import new_id
from tests.behaviour.conversations.talk import Talk, asked
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

    async def problems(self) -> list[str]:
        """The marks that are not in exactly one node, or twice in one request."""

        async def unread() -> list[str]:
            nodes = [prompt for row in await self.talk.sessions() for prompt in await self.talk.prompts(row.id)]
            return [mark for mark in self.marks if not any(mark in node for node in nodes)]

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


async def test_each_steer_enters_the_context_once(team: Stack) -> None:
    """The sessions are short, so that messages meet their beginnings and ends."""

    async def load(seed: int) -> list[str]:
        sender = Sender(await Talk.begin(team, SHORT), seed)
        await asyncio.gather(*(sender.steer() for _ in range(10)))
        return await sender.problems()

    assert sum(await asyncio.gather(*(load(seed) for seed in range(4))), []) == []
