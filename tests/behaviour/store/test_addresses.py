"""Addresses: each has one conversation, created at first use; one session per message, in order; each key once."""

from typing import Any

from domain.channels import Address, ArrivingMessage
from domain.ids import new_id
from store import addresses
from store.database import Pool
from tests.behaviour.store.conftest import NEW


def message(key: str, text: str = "Hello.", **fields: Any) -> ArrivingMessage:
    return ArrivingMessage(key=key, text=text, session=NEW, **fields)


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


async def test_a_busy_address_can_refuse_a_message(pool: Pool) -> None:
    address = Address.channel("chat", new_id(), "ann")
    first = (await addresses.accept(pool, "default", address, message("first"))).session
    refused = await addresses.accept(pool, "default", address, message("second", if_busy="reject"))
    assert first is not None and refused.refused is not None and refused.refused.busy == first.id
