"""The short memory hands out recent facts once, to the run that committed them, and is bounded."""

import pytest

from activities.runtime import short_memory
from activities.runtime.short_memory import ShortMemory


def remembered() -> ShortMemory[str]:
    memory = ShortMemory[str]()
    memory.keep("t", "n", "r", "facts")
    return memory


def test_facts_are_handed_out_once() -> None:
    memory = remembered()
    assert memory.take("t", "n", "r") == "facts"
    assert memory.take("t", "n", "r") is None


@pytest.mark.parametrize(("tenant", "node", "run"), [("other", "n", "r"), ("t", "other", "r"), ("t", "n", "other")])
def test_facts_belong_to_one_call_of_one_run(tenant: str, node: str, run: str) -> None:
    assert remembered().take(tenant, node, run) is None


def test_run_that_is_refused_uses_them_up() -> None:
    memory = remembered()
    assert memory.take("t", "n", "other") is None
    assert memory.take("t", "n", "r") is None


def test_old_facts_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_memory, "KEPT_SECONDS", -1.0)
    assert remembered().take("t", "n", "r") is None


def test_memory_is_bounded() -> None:
    memory = remembered()
    for number in range(short_memory.MOST_KEPT):
        memory.keep("t", f"n{number}", "r", "others")
    assert memory.take("t", "n", "r") is None
    assert memory.take("t", "n0", "r") == "others"
