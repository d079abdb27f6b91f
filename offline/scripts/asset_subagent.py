"""The demo script of the agent asset_subagent: its worker draws an asset, its reviewer checks it and hands it over."""

import re

from offline.markers import Marker, without_markers
from offline.reply import Replies, Reply, ToolUse
from offline.scripts.demo import gist, read_file, write_file
from offline.transcript import Transcript

_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64">\n'
    "  <title>{title}</title>\n"
    '  <circle cx="32" cy="32" r="26" fill="#3f7d3a"/>\n'
    '  <circle cx="26" cy="26" r="12" fill="#5aa653"/>\n'
    "</svg>\n"
)
_FILE = re.compile(r"[\w-]+\.svg")
_NO_WORD = re.compile(r"[^a-z0-9]+")


def replies(transcript: Transcript, marker: Marker) -> Replies:
    return _review(transcript) if "approve_asset" in transcript.tools else _draw(transcript)


def _draw(transcript: Transcript) -> Replies:
    goal = without_markers(transcript.request).splitlines()[0][:60]
    if "impossible" in goal.lower():
        yield Reply(text="This cannot be drawn.", calls=(ToolUse("fail_asset", {"reason": f"Not drawable: {goal}"}),))
    path = (_NO_WORD.sub("-", goal.lower()).strip("-")[:40] or "asset") + ".svg"
    [wrote] = yield Reply(text=f"I draw it as {path}.", calls=(write_file(path, _SVG.format(title=goal)),))
    if wrote.is_error:
        yield Reply(text="It cannot be kept.", calls=(ToolUse("fail_asset", {"reason": gist(wrote)}),))
    yield Reply(text=f"The asset is in {path}: a round shape with light from the upper left.")


def _review(transcript: Transcript) -> Replies:
    named = _FILE.findall(transcript.request)
    path = named[-1] if named else "asset.svg"
    status = ToolUse("update_asset_status", {"status": f"Reviewing {path}"})
    _, page = yield Reply(text=f"I look at {path}.", calls=(status, read_file(path)))
    verdict = "It is drawn from above, 64 by 64 units, without text."
    if page.is_error or "viewBox" not in page.text:
        verdict = f"I hand it over with its faults: {gist(page)}"
    summary = f"{path}: a top-down asset of 64 by 64 units, checked for size, view and text."
    yield Reply(text=verdict, calls=(ToolUse("approve_asset", {"summary": summary, "attachments": [path]}),))
