"""The tool calls of a mission, for the risks that begin after a number of them."""

from datetime import datetime
from typing import Any

from domain.messages import ReplyBody
from domain.missions import Mission
from store.database import Pool
from store.missions import SESSIONS


async def since(pool: Pool, mission: Mission, start: datetime) -> list[tuple[str, Any]]:
    """The tool and the arguments of each call since then. The arguments are None if they are no longer stored."""
    rows = await pool.fetch(
        f"""SELECT t.tool, t.call_index, m.body
              FROM tool_calls t JOIN ({SESSIONS}) s ON s.tenant = t.tenant AND s.id = t.session_id
              LEFT JOIN messages m ON m.tenant = t.tenant AND m.id = t.node AND m.kind = 'assistant'
             WHERE t.started_at >= $4""",
        mission.tenant,
        mission.conversation_id,
        mission.schedule_id,
        start,
    )
    return [(row["tool"], _arguments(row["body"], row["call_index"])) for row in rows]


def _arguments(body: str | None, index: int) -> Any:
    calls = ReplyBody.model_validate_json(body).calls if body is not None else []
    return calls[index].arguments if index < len(calls) else None
