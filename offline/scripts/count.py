"""Takes n steps of one tool call each, then answers: [[script:count n=3 tool=list_files input={} grow=BYTES]].

With `grow` the first step writes a file of that size and every later step reads it, so that the context grows.
Steps that a summary has replaced are counted too.
"""

from offline.markers import Marker
from offline.reply import Replies, Reply, ToolUse
from offline.scripts.demo import counted
from offline.scripts.varied import varied
from offline.transcript import Transcript

INPUTS = {"list_files": {"path": "."}, "bash": {"command": "true"}, "report_progress": {"message": "counting"}}
_LINE = "The quick brown fox jumps over the lazy dog and runs on to the next long line.\n"


def replies(transcript: Transcript, marker: Marker) -> Replies:
    steps = marker.count("n", 3)
    last = ""
    # a long session has many steps, and of those that are done only the last result is needed
    skipped = max(0, min(len(transcript.pairs), steps - transcript.done_before) - 1)
    for number in range(transcript.done_before + skipped + 1, steps + 1):
        [result] = yield Reply(text=f"Step {number} of {steps}.", calls=(_call(number, marker),), skipped=skipped)
        last = result.text
    yield Reply(text=f"Counted {counted(steps, 'step')}." + (f" The last result was: {last[:200]}" if last else ""))


def _call(number: int, marker: Marker) -> ToolUse:
    if size := marker.count("grow", 0):
        if number == 1:
            return ToolUse("write_file", {"path": "grow.txt", "content": (_LINE * (size // len(_LINE) + 1))[:size]})
        return ToolUse("read_file", varied("read_file", {"path": "grow.txt"}, number))
    tool = marker.text("tool", "list_files")
    return ToolUse(tool, varied(tool, marker.options.get("input") or INPUTS.get(tool, {}), number))
