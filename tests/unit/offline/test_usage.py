"""The prompt cache: a request reads the longest prefix that an earlier one has marked."""

from typing import Any

from offline.usage import PromptCache

STEPS = 30


def conversation(steps: int, word: str = "same", since: int = 0) -> dict[str, Any]:
    """A request whose last block is marked; its blocks have `word` from the given step on."""
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": f"{step:04}{word if step >= since else 'same'}"} for step in range(steps)
    ]
    blocks[-1]["cache_control"] = {"type": "ephemeral"}
    return {"model": "m", "messages": [{"role": "user", "content": [block]} for block in blocks]}


def test_prefix_that_was_marked_is_read_and_the_rest_is_written() -> None:
    cache = PromptCache()
    for steps in range(1, STEPS + 1):
        usage = cache.measure(conversation(steps))
        assert usage.cache_read_input_tokens == (steps - 1) * 3  # of twelve characters: the role and the text
        assert usage.cache_creation_input_tokens == 3
    usage = cache.measure(conversation(STEPS, word="else", since=5))
    assert (usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (5 * 3, (STEPS - 5) * 3)
    assert cache.measure({**conversation(STEPS), "model": "other"}).cache_read_input_tokens == 0
