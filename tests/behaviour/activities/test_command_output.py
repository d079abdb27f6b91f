"""What a command writes, in all the ways in which programs write to their standard output and error."""

from tests.behaviour.supervision.people import bash
from tests.support.stack import Stack, calls

WAYS = """echo one; echo two >&2; echo three > /dev/stdout; echo four > /dev/stderr
echo five | tee /dev/stderr > /dev/null; python3 -c 'open("/proc/self/fd/1", "w").write("six")'"""


async def test_output_can_be_opened_by_name(stack: Stack) -> None:
    """A socket cannot be opened by its name in /dev, a pipe can, by the user that it belongs to."""
    task = await stack.run(calls(bash(WAYS)))
    assert task["status"] == "completed"
    returned = str((await stack.asked(task["task_id"]))[-1]["body"]["messages"][-1])
    for number in ("one", "two", "three", "four", "five", "six"):
        assert number in returned, returned
    assert "No such device" not in returned and "denied" not in returned
