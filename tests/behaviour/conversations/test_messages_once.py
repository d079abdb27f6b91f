"""Messages to a conversation under load: each enters the context once, whoever reads it."""

import asyncio
from collections import Counter
from random import Random

from domain.ids import new_id
from tests.behaviour.conversations.talk import Talk, asked, async_task, chain, say
from tests.support.stack import Stack, eventually

SHORT = "[[script:say words=3 delay=0.02]]"


async def steer(talk: Talk, text: str) -> bool:
    """Send a message to the running session, or to a new one if none is running; False if the request was refused."""
    body = {"conversation_id": talk.id, "input": text, "transport": "stream", "if_busy": "steer"}
    answer = await talk.stack.http.post("/conversations/run", json=body, headers={"Idempotency-Key": new_id()})
    assert answer.status_code in (202, 409), answer.text  # 409: sessions began and ended between all attempts
    return answer.status_code == 202


async def check_read_once(talk: Talk, words: list[str]) -> list[str]:
    """The violations: a word that no session or more than one node has, or that a request has twice."""

    async def all_read() -> bool:
        prompts = [prompt for row in await talk.sessions() for prompt in await talk.prompts(row.id)]
        return all(any(word in prompt for prompt in prompts) for word in words)

    found: list[str] = []
    try:
        await eventually(all_read, seconds=40, what="all messages were read")
    except AssertionError as error:
        found.append(str(error))
    await talk.rest()
    rows = await talk.sessions()
    for word in words:
        nodes = [
            (row.id, prompt.count(word)) for row in rows for prompt in await talk.prompts(row.id) if word in prompt
        ]
        if [count for _, count in nodes] != [1]:
            found.append(f"{word} is in the nodes {nodes}")
        most = Counter[str]()
        for request in await asked(talk.stack, word):
            most[word] = max(most[word], str(request["messages"]).count(word))
        if most[word] != 1:
            found.append(f"{word} is {most[word]} times in a request")
    return found


async def senders(stack: Stack, seed: int, count: int) -> tuple[Talk, list[str]]:
    """One conversation whose sessions are short, so that messages meet their beginnings and ends."""
    random = Random(seed)
    talk = await Talk.begin(stack, SHORT)
    words: list[str] = []

    async def send() -> None:
        await asyncio.sleep(random.uniform(0, 2))
        word = f"word-{new_id()}"
        if await steer(talk, f"{word} {SHORT}"):
            words.append(word)

    await asyncio.gather(*(send() for _ in range(count)))
    return talk, words


async def racers(stack: Stack, seed: int) -> tuple[Talk, list[str]]:
    """Fires, messages and cancels at the same time."""
    random = Random(seed)
    talk = await Talk.begin(stack, chain([async_task(say(f"Found {n}.")) for n in range(2)], last="Off."))
    words: list[str] = []

    async def send() -> None:
        await asyncio.sleep(random.uniform(0, 2))
        word = f"word-{new_id()}"
        if await steer(talk, f"{word} {SHORT}"):
            words.append(word)

    async def fire() -> None:
        await asyncio.sleep(random.uniform(0.3, 2))
        word = f"word-{new_id()}"
        answer = await talk.try_fire(f"{word} {SHORT}", if_busy=random.choice(["reject", "queue"]))
        assert answer.status_code in (202, 409, 422), answer.text
        if answer.status_code == 202:
            words.append(word)

    async def cancel() -> None:
        await asyncio.sleep(random.uniform(0.3, 2))
        live = [row.id for row in await talk.sessions() if not row.status.terminal and row.spawned_by is None]
        if live:
            await stack.cancel(live[-1])

    await asyncio.gather(*(send() for _ in range(6)), *(fire() for _ in range(2)), *(cancel() for _ in range(2)))
    return talk, words


async def test_each_steer_enters_the_context_once(team: Stack) -> None:
    talks = await asyncio.gather(*(senders(team, seed, 10) for seed in range(6)))
    found = [one for talk, words in talks for one in await check_read_once(talk, words)]
    assert sum(len(words) for _, words in talks) > 40
    assert not found, "\n".join(found)


async def test_races_of_fire_message_and_cancel(team: Stack) -> None:
    talks = await asyncio.gather(*(racers(team, seed) for seed in range(6)))
    found = [one for talk, words in talks for one in await check_read_once(talk, words)]
    assert not found, "\n".join(found)
