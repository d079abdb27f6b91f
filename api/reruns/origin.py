"""Where a rerun begins: the node before the chosen step, and the messages that the step found."""

import json
from dataclasses import dataclass, field
from typing import Any

from api.http.problems import finding
from api.reruns.body import ChangedResult, RerunBody
from api.submission.accept import Checked
from api.views.messages import own_nodes
from domain.errors import Invalid
from domain.ids import derive_id
from domain.messages import ASSISTANT, SUMMARY, TOOL_RESULTS, USER, Node, answer_calls, calls_of
from domain.task import opening
from store import conversations, tool_calls
from store.database import Pool
from store.sessions import SessionRow

Words = tuple[str, str, dict[str, Any]]  # kind, author, content


@dataclass(frozen=True)
class Beginning:
    head: str | None  # the node of the original that the rerun branches off from
    words: list[Words] = field(default_factory=list)

    def copied(self, session_id: str) -> list[Node]:
        """The words as messages of the rerun."""
        nodes: list[Node] = []
        for place, (kind, author, content) in enumerate(self.words):
            node = Node(
                id=derive_id(session_id, "rerun", place),
                parent=nodes[-1].id if nodes else self.head,
                session_id=session_id,
                kind=kind,
                author=author,
                step=1,
                body=json.dumps(content),
            )
            nodes.append(node)
        return nodes


async def find(pool: Pool, source: SessionRow, body: RerunBody, task: Checked) -> Beginning:
    """Of a source that is a rerun itself, the words it began with count too."""
    own = await own_nodes(pool, source)
    step = body.from_step
    _check_step(source, own, step)
    before = [node for node in own if node.step < step]
    head = before[-1].id if before else own[0].parent if own else source.base_head
    words = _found(own, step)
    if not words and step == 1:
        words = [(kind, author, {"parts": parts}) for kind, author, parts in await _inbox(pool, source)]
    if before and (calls := calls_of(before[-1])) and not any(kind == TOOL_RESULTS for kind, _, _ in words):
        results = await tool_calls.results(pool, source.tenant, before[-1].id)
        words.insert(0, (TOOL_RESULTS, "", answer_calls(calls, results)))
    if body.tool_results:
        words = _with_results(words, body.tool_results)
    if body.input is not None:
        text = opening(task.spec, sorted(task.files)) if step == 1 else _as_text(body.input)
        said: Words = (USER, "", {"parts": [{"type": "text", "text": text}]})
        words = [*(words[:-1] if step == 1 else words), said]
    if step == 1 and not words:  # a fork that was only prepared
        raise Invalid("The task was never given any words.", type="unknown-step")
    return Beginning(head, words)


def _check_step(source: SessionRow, own: list[Node], step: int) -> None:
    steps = sorted({node.step for node in own if _is_reply(node)})
    if not steps or source.step > steps[-1]:
        steps.append(max(1, source.step))  # the one that it ended in, without an answer
    if step not in steps:
        problem = finding("/from_step", "unknown_step", "the task itself took no such step", steps[:200])
        raise Invalid("The task has no such step.", type="unknown-step", errors=[problem])


def _is_reply(node: Node) -> bool:
    """An answer of the model; messages that came with the task may be an assistant's too."""
    return node.kind == ASSISTANT and "stop_reason" in node.content()


def _found(own: list[Node], step: int) -> list[Words]:
    """What stood between the step before and this one's answer."""
    words: list[Words] = []
    for node in (node for node in own if node.step == step):
        if node.kind == SUMMARY or _is_reply(node):
            break
        words.append((node.kind, node.author, node.content()))
    return words


async def _inbox(pool: Pool, source: SessionRow) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """The words that opened a task which never got an answer."""
    texts = [await conversations.message_text(pool, source.tenant, message_id) for message_id in source.inbox]
    return [(USER, "", [{"type": "text", "text": text}]) for text in texts if text]


def _with_results(words: list[Words], changes: list[ChangedResult]) -> list[Words]:
    place = next((place for place, (kind, _, _) in enumerate(words) if kind == TOOL_RESULTS), None)
    known = len(words[place][2]["results"]) if place is not None else 0
    wrong = [
        finding(
            f"/tool_results/{number}/index", "unknown_call", "the step before made no such call", list(range(known))
        )
        for number, change in enumerate(changes)
        if change.index >= known or change.index in [other.index for other in changes[:number]]
    ]
    if wrong or place is None:
        raise Invalid("A changed result belongs to no call, or to one that has another.", errors=wrong)
    kind, author, content = words[place]
    results = [dict(result) for result in content["results"]]
    for change in changes:
        results[change.index] |= {"text": change.text, "failed": change.failed}
    return [*words[:place], (kind, author, {"results": results}), *words[place + 1 :]]


def _as_text(value: str | dict[str, Any]) -> str:
    return value if isinstance(value, str) else "```json\n" + json.dumps(value, indent=2) + "\n```"
