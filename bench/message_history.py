"""History bytes of a conversation per message: they must not grow with earlier messages and subagents."""

import json
from typing import Any

from bench.history import size
from bench.lab import Lab
from bench.ours import AGENT
from bench.table import Aim, Row
from domain.ids import conversation_workflow_id

ALONE = "[[script:say]]"
WITH_SUBAGENT = "[[script:chain json={}]]".format(
    json.dumps(
        [
            [{"name": "async_task", "input": {"agent": "researcher", "prompt": ALONE, "description": "a word"}}],
            [{"name": "gather", "input": {"task_ids": ["$0"]}}],
        ]
    )
)


async def measure(lab: Lab, messages: int) -> list[Row]:
    return [
        await _row(lab, "history a message", ALONE, messages),
        await _row(lab, "history a message with a subagent", WITH_SUBAGENT, messages),
    ]


async def _row(lab: Lab, name: str, text: str, messages: int) -> Row:
    """The conversation closes between messages, so each message is a separate run; the first message needs none."""
    body: dict[str, Any] = {"agent": AGENT, "input": ALONE, "transport": "stream"}
    sizes = []
    for number in range(messages):
        answer = (await lab.api.post("/conversations/run", json=body)).raise_for_status().json()
        await lab.ours.closed(answer["session_id"])
        if number:
            conversation = conversation_workflow_id(answer["conversation_id"])
            await lab.temporal.get_workflow_handle(conversation).result()
            sizes.append(await size(lab.temporal, conversation))
        body |= {"conversation_id": answer["conversation_id"], "input": text}
    aim = Aim(high=1.05, of_value=True)
    return Row(f"{name}, N={messages} to N=2", "ratio", [sizes[-1] / sizes[0]], aim=aim)
