"""The system prompt with the arguments of a subagent."""

import time

from domain.agents.system_prompt import MOST_ARGUMENT, NOT_GIVEN, with_arguments


def test_arguments_are_shown_cut_and_named_if_missing() -> None:
    shown = with_arguments("{{arguments.a}} {{ arguments.b }} {{arguments.c}}", {"a": {"n": [1]}, "b": "x" * 5_000})
    assert shown == f'{{"n": [1]}} {"x" * MOST_ARGUMENT} […] {NOT_GIVEN}'


def test_large_argument_is_written_out_once_however_often_the_prompt_shows_it() -> None:
    begun = time.process_time()
    with_arguments("{{arguments.a}}" * 6_000, {"a": [*range(20_000)]})
    assert time.process_time() - begun < 0.5
