"""The start of a rerun: the node before the chosen step, and the messages between that node and the step."""

import json
from dataclasses import dataclass, field

from api.http.problems import finding
from api.schemas.reruns import ChangedResult, RerunBody
from api.submission.accept import Checked
from api.views.messages import own_nodes
from domain.content import TextBlock
from domain.errors import Invalid
from domain.ids import derive_id
from domain.json_object import JsonObject
from domain.messages import SUMMARY, Body, Node, ReplyBody, ResultsBody, UserBody, answer_calls, calls_of
from domain.task import opening
from store import conversations, tool_calls
from store.database import Pool
from store.sessions import SessionRow

Message = tuple[str, Body]  # author, body


@dataclass(frozen=True)
class RerunOrigin:
    head: str | None  # the node of the original where the rerun branches off
    messages: list[Message] = field(default_factory=list)

    def copied(self, session_id: str) -> list[Node]:
        """The messages as nodes of the rerun."""
        nodes: list[Node] = []
        for place, (author, body) in enumerate(self.messages):
            node = Node(
                id=derive_id(session_id, "rerun", place),
                parent=nodes[-1].id if nodes else self.head,
                session_id=session_id,
                kind=body.kind,
                author=author,
                step=1,
                body=body,
            )
            nodes.append(node)
        return nodes


async def find(pool: Pool, source: SessionRow, body: RerunBody, task: Checked) -> RerunOrigin:
    """Find the start of a rerun. If the source is itself a rerun, its copied messages count as its own."""
    own = await own_nodes(pool, source)
    step = body.from_step
    _check_step(source, own, step)
    before = [node for node in own if node.step < step]
    head = before[-1].id if before else own[0].parent if own else source.base_head
    messages = _messages_of(own, step)
    if not messages and step == 1:
        messages = await _inbox(pool, source)
    # a call without a result is refused by every model, and the original may have ended before it wrote them
    if before and (calls := calls_of(before[-1])) and not any(isinstance(body, ResultsBody) for _, body in messages):
        results = await tool_calls.results(pool, source.tenant, before[-1].id)
        messages.insert(0, ("", answer_calls(calls, results)))
    if body.tool_results:
        messages = _with_results(messages, body.tool_results)
    if body.input is not None:
        text = opening(task.spec, sorted(task.files)) if step == 1 else _as_text(body.input)
        messages = [*(messages[:-1] if step == 1 else messages), _user(text)]
    if step == 1 and not messages:  # a fork that was prepared but not executed
        raise Invalid("The task has no opening message.", type="unknown-step")
    return RerunOrigin(head, messages)


def _check_step(source: SessionRow, own: list[Node], step: int) -> None:
    steps = sorted({node.step for node in own if _is_reply(node)})
    if not steps or source.step > steps[-1]:
        steps.append(max(1, source.step))  # the step in which it ended without a response
    if step not in steps:
        problem = finding("/from_step", "unknown_step", "the task itself took no such step", steps[:200])
        raise Invalid("The task has no such step.", type="unknown-step", errors=[problem])


def _is_reply(node: Node) -> bool:
    """Whether the node is a model response; messages sent with the task may also have the kind ASSISTANT."""
    return isinstance(node.body, ReplyBody) and node.body.stop_reason is not None


def _messages_of(own: list[Node], step: int) -> list[Message]:
    """The messages between the previous step and the model response of this one."""
    messages: list[Message] = []
    for node in (node for node in own if node.step == step):
        if node.kind == SUMMARY or _is_reply(node):
            break
        messages.append((node.author, node.body))
    return messages


async def _inbox(pool: Pool, source: SessionRow) -> list[Message]:
    """The opening messages of a task that has no model response."""
    texts = [await conversations.message_text(pool, source.tenant, message_id) for message_id in source.inbox]
    return [_user(text) for text in texts if text]


def _user(text: str) -> Message:
    return "", UserBody(parts=[TextBlock(text=text)])


def _with_results(messages: list[Message], changes: list[ChangedResult]) -> list[Message]:
    found = next(((place, body) for place, (_, body) in enumerate(messages) if isinstance(body, ResultsBody)), None)
    known = len(found[1].results) if found is not None else 0
    wrong = [
        finding(
            f"/tool_results/{number}/index", "unknown_call", "the step before made no such call", list(range(known))
        )
        for number, change in enumerate(changes)
        if change.index >= known or change.index in [other.index for other in changes[:number]]
    ]
    if wrong or found is None:
        raise Invalid("A changed result belongs to no call, or to a call that is changed twice.", errors=wrong)
    place, body = found
    results = list(body.results)
    for change in changes:
        results[change.index] = results[change.index].model_copy(update={"text": change.text, "failed": change.failed})
    return [*messages[:place], (messages[place][0], ResultsBody(results=results)), *messages[place + 1 :]]


def _as_text(value: str | JsonObject) -> str:
    return value if isinstance(value, str) else "```json\n" + json.dumps(value, indent=2) + "\n```"
