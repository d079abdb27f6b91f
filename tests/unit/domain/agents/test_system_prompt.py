"""The system prompt with the arguments of a subagent."""

import time

from domain.agents.system_prompt import with_arguments


def test_large_argument_is_written_out_once_however_often_the_prompt_shows_it() -> None:
    begun = time.process_time()
    with_arguments("{{arguments.a}}" * 6_000, {"a": [*range(20_000)]})
    assert time.process_time() - begun < 0.5
