"""Addresses: each has one conversation, created at first use; one session per message, in order; each key once."""

import asyncio
from typing import Any

import pytest

from domain.channels import Address, ArrivingMessage
from domain.ids import new_id
from domain.sessions.session import Reason
from store import addresses, conversations, sessions
from store.database import Pool, connect
from tests.behaviour.store.conftest import NEW
from tests.behaviour.store.test_sessions import end


def message(key: str, text: str = "Hello.", **fields: Any) -> ArrivingMessage:
    return ArrivingMessage(key=key, text=text, session=NEW, **fields)


@pytest.mark.exactly_once
async def test_concurrent_first_messages_make_one_conversation(pool: Pool, database: str) -> None:
    """This also holds for two processes, which share only the database."""
    address = Address.channel("chat", new_id(), "ann")
    async with await connect(database, max_size=4) as other:
        arrivals = await asyncio.gather(
            *(
                addresses.accept(other if number % 2 else pool, "default", address, message(f"m{number}", str(number)))
                for number in range(8)
            )
        )
    made = [arrival.session for arrival in arrivals if arrival.session is not None]
    assert len({session.id for session in made}) == 8 and len({session.conversation_id for session in made}) == 1
    assert sum(session.live for session in made) == 1  # the others wait for their turn
    assert {session.workspace_id for session in made} == {made[0].conversation_id}
    assert await addresses.find(pool, "default", address) == made[0].conversation_id


async def test_a_repeated_message_is_accepted_once(pool: Pool) -> None:
    address = Address.channel("chat", new_id(), "ann")
    repeats = await asyncio.gather(*(addresses.accept(pool, "default", address, message("same")) for _ in range(6)))
    assert sum(not arrival.duplicate for arrival in repeats) == 1
    assert len({arrival.session.id for arrival in repeats if arrival.session}) == 1


async def test_different_parts_and_tenants_are_different_addresses(pool: Pool) -> None:
    one = new_id()
    places = [
        ("default", Address.channel("chat", f"{one}/x", "ann")),
        ("default", Address.channel("chat", one, "x/ann")),
        ("default", Address.schedule(one)),
        ("another", Address.schedule(one)),
    ]
    made = [(await addresses.accept(pool, tenant, address, message("m"))).session for tenant, address in places]
    assert len({session.conversation_id for session in made if session}) == len(places)


async def test_a_message_to_a_terminated_address_changes_nothing(pool: Pool) -> None:
    address = Address.channel("chat", new_id(), "ann")
    first = (await addresses.accept(pool, "default", address, message("first"))).session
    assert first is not None
    await end(pool, first.ref, Reason.GOAL_REACHED)
    await conversations.terminate(pool, "default", first.conversation_id)
    refused = await addresses.accept(pool, "default", address, message("second"))
    assert refused.session is None and refused.refused is not None and refused.refused.terminated
    newest = await sessions.newest_of_thread(pool, "default", first.conversation_id)
    assert newest is not None and newest.id == first.id


async def test_a_busy_address_can_refuse_a_message(pool: Pool) -> None:
    address = Address.channel("chat", new_id(), "ann")
    first = (await addresses.accept(pool, "default", address, message("first"))).session
    refused = await addresses.accept(pool, "default", address, message("second", if_busy="reject"))
    assert first is not None and refused.refused is not None and refused.refused.busy == first.id
