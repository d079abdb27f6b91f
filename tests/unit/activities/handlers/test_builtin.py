"""The handlers that come with the platform: which participant speaks next, and which result ends the session."""

import pytest

from activities.handlers.registry import hand_in, round_table
from domain.agents.handler import AnsweredCall, HandlerMessage, HandlerReply, HandlerTurn, Speaker

SEATS = ["ann", "ben", "cat"]
RESULT = "Subagent (reference: x) has returned the following result:\n\n"


def turn(*messages: HandlerMessage, rounds: str = "", seats: list[str] = SEATS) -> HandlerTurn:
    task = HandlerMessage(speaker=Speaker.USER, text="Tea or coffee?")
    return HandlerTurn(
        key="k",
        session_id="s",
        agent="table",
        side="a",
        step=1,
        messages=[task, *messages],
        variables={"ROUNDS": rounds},
        subagents=seats,
    )


def spoke(name: str, text: str, failed: bool = False, create: bool = True) -> HandlerMessage:
    given = {"agent": name, "name": name} if create else {"target": name}
    tool = "subagent_create" if create else "subagent_message"
    call = AnsweredCall(name=tool, input=given, result=RESULT + text, failed=failed)
    return HandlerMessage(speaker=Speaker.SELF, calls=[call])


def addressed(reply: HandlerReply) -> str:
    [call] = reply.calls
    return str(call.input.get("target") or call.input["name"])


async def test_participants_speak_in_turn_and_get_the_messages_of_the_others() -> None:
    first = await round_table(turn())
    assert addressed(first) == "ann" and "Tea or coffee?" in first.calls[0].input["message"]
    second = await round_table(turn(spoke("ann", "Tea.")))
    assert addressed(second) == "ben" and "ann: Tea." in second.calls[0].input["message"]
    again = await round_table(turn(spoke("ann", "Tea."), spoke("ben", "Coffee."), spoke("cat", "Water.")))
    assert again.calls[0].name == "subagent_message" and addressed(again) == "ann"
    # her own thread already has the earlier messages
    assert again.calls[0].input["message"] == "ben: Coffee.\n\ncat: Water."


async def test_addressed_participant_speaks_next() -> None:
    assert addressed(await round_table(turn(spoke("ann", "What do you say, @cat?")))) == "cat"
    assert addressed(await round_table(turn(spoke("ann", "I, @ann, say tea.")))) == "ben"
    assert addressed(await round_table(turn(spoke("ann", "Write to @catherine.")))) == "ben"


@pytest.mark.parametrize(("rounds", "most"), [("1", 3), ("", 6), ("many", 6), ("0", 6)])
async def test_round_table_ends_after_all_rounds(rounds: str, most: int) -> None:
    said = [spoke(SEATS[number % 3], f"Word {number}.", create=number < 3) for number in range(most)]
    assert (await round_table(turn(*said[:-1], rounds=rounds))).calls
    last = await round_table(turn(*said, rounds=rounds))
    assert not last.calls and last.ends is None and f"Word {most - 1}." in last.text


async def test_round_table_fails_with_too_few_participants_or_one_that_fails() -> None:
    assert (await round_table(turn(seats=["ann"]))).ends == "fail"
    failed = await round_table(turn(spoke("ann", "no", failed=True)))
    assert failed.ends == "fail" and failed.text.startswith("ann could not speak")


async def test_hand_in_ends_the_session_with_what_the_other_side_said() -> None:
    said = HandlerMessage(speaker=Speaker.OTHER, text="A draft.")
    assert await hand_in(turn(said)) == HandlerReply(text="A draft.", ends="stop")
    assert (await hand_in(turn())).ends == "fail"
