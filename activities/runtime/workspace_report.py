"""The report to the model and to watchers about files that could not be saved."""

from dataclasses import dataclass, field, replace

from activities.tools.support.output import clean
from activities.tools.tool import ToolResult
from domain.events import WorkspaceNotKept
from domain.sessions.step import preview

NAMED = 10  # files that are named; the rest is counted


@dataclass(frozen=True)
class KeepReport:
    """Files that could not be saved and were not reported before: path -> reason."""

    skipped: dict[str, str] = field(default_factory=dict)

    def added_to(self, result: ToolResult) -> ToolResult:
        if not self.skipped:
            return result
        named = {preview(clean(path), 200): why for path, why in list(self.skipped.items())[:NAMED]}
        lines = [f"- {path}: {why}" for path, why in named.items()]
        if len(self.skipped) > NAMED:
            lines.append(f"- and {len(self.skipped) - NAMED:,} more")
        text = (
            "[Not kept. The workspace has this now, but when the session continues on another worker, it will be "
            "missing, or as it was before:\n" + "\n".join(lines) + "]"
        )
        event = WorkspaceNotKept(count=len(self.skipped), files=named)
        return replace(result, text=f"{result.text}\n{text}", events=[*result.events, event])
