"""The coder: reads how the project is worked on, mends the function that a failing test calls, and shows the change."""

import re

from offline.markers import Marker, without_markers
from offline.reply import Replies, Reply, ToolUse
from offline.scripts.demo import DemoPlan, bash, list_files, progress
from offline.scripts.mender import COMMAND, DEFAULT_COMMAND, Failed, find_cause, try_changes
from offline.transcript import Transcript

_INSTRUCTIONS = re.compile(r"<workspace_instructions\b.*?</workspace_instructions>", re.DOTALL)
_SKILL = re.compile(r"^- ([a-z0-9-]*test[a-z0-9-]*): ", re.MULTILINE)


def replies(transcript: Transcript, marker: Marker) -> Replies:
    plan = DemoPlan(["See the tests fail", "Find the cause", "Mend it", "Check the change"])
    opening = transcript.workspace
    skill = _SKILL.search(opening)
    calls = (plan.call(), list_files(), *([ToolUse("load_skill", {"name": skill[1]})] if skill else []))
    yield Reply(text="First how this project is worked on, and what is in it.", calls=calls)
    rules = _INSTRUCTIONS.search(opening)
    named = COMMAND.search(without_markers(transcript.request)) or (COMMAND.search(rules[0]) if rules else None)
    command = named[1] if named else DEFAULT_COMMAND
    [ran] = yield Reply(text=f"The tests are run with `{command}`.", calls=(bash(command),))
    if not ran.is_error:
        yield Reply(calls=(plan.change(reason="The tests pass", done=True),))
        yield Reply(text=f"`{command}` passes; there is nothing to mend.")
        return
    yield Reply(calls=(plan.tick(), progress("The tests fail, as expected", 25)))
    found = yield from find_cause(ran)
    if isinstance(found, Failed):
        yield Reply(calls=(plan.change(reason="The cause is not in the project"),))
        yield Reply(text=found.text)
        return
    yield Reply(text=f"The cause is in {found.path}.", calls=(plan.tick(),))
    done = yield from try_changes(found, command)
    if isinstance(done, Failed):
        yield Reply(calls=(plan.change(reason="No small change helps"),))
        yield Reply(text=done.text)
        return
    yield Reply(text="The tests pass. I read the difference once more.", calls=(plan.tick(), bash("git diff")))
    yield Reply(calls=(plan.tick(), progress("Mended", 100)))
    yield Reply(
        text=f"Cause: {found.cause}. Change in {found.path}: {done}. `{command}` passes now; the change is in"
        " changes.patch, which `errand apply` takes."
    )
