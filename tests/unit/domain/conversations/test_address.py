"""Addresses as they are stored: the same parts have the same key, and no others have it."""

from itertools import combinations

from domain.channels import Address


def test_different_addresses_have_different_keys_and_a_key_names_its_address() -> None:
    found = [
        Address.channel("c", "a", "b/c"),
        Address.channel("c", "a/b", "c"),
        Address.channel("c", "a%2Fb", "c"),
        Address.channel("c", "a b", "c"),
        Address.channel("c", "a+b", "ć"),
        Address.trigger("t", "key", "a/b"),
        Address.trigger("t", "key", "a", "b"),
        Address.schedule("t"),
    ]
    assert all(one.key != other.key for one, other in combinations(found, 2))
    assert [Address.of_key(one.kind, one.key) for one in found] == found
