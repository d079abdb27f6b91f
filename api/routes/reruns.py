"""/tasks/{id}/rerun: run a task again from one of its steps, with changes; /tasks/{id}/replay: does the current code
decide as its history does?"""

import asyncio
import json
import sys
from dataclasses import dataclass, field
from typing import Annotated

from errand import models
from fastapi import APIRouter, Response
from pydantic import Field, StringConstraints

from api.http.auth import Call, Reader, Submitter
from api.http.body import check_input_length, json_body
from api.http.idempotency import IdempotencyKey, Key
from api.http.lookup import check_kept, own_session, session_of
from api.http.problems import finding, refuse
from api.openapi import problems
from api.submission import rules, submit
from api.submission.submit import AcceptedResponse, Checked, Prepared, SessionPlace
from api.submission.task_files import NOTHING_SHOWN, collect_files, find_shown
from api.views.conversation import own_nodes
from domain.agents.definition import AgentDefinition, AgentVersion, ModelName, all_models, session_sides
from domain.errors import Conflict, Invalid, NotFound, TooMany, Unavailable
from domain.ids import derive_id
from domain.json_object import JsonObject
from domain.messages import SUMMARY, Body, Node, ReplyBody, ResultsBody, TextBlock, UserBody, answer_calls, calls_of
from domain.policy.rules import Rule
from domain.sessions.new_session import NewSession, Trigger
from domain.sessions.session import AgentRef, Limits
from domain.sessions.writes import Acceptance
from domain.task import Strict, TaskConfig, TaskLimits, TaskSpec, Text
from store import agents, conversations, sessions, tool_calls, traces, workspaces
from store.agents import TaskAgent
from store.database import Pool
from store.sessions import SessionRow
from store.workspaces import Manifest

router = APIRouter(tags=["tasks"])
_EXAMPLES = {
    "prompt": {
        "summary": "From the third step, with other instructions",
        "value": {"from_step": 3, "prompt": "Answer in one sentence."},
    },
    "result": {
        "summary": "As if the tool had failed",
        "value": {"from_step": 2, "tool_results": [{"index": 0, "text": "No such file", "failed": True}]},
    },
    "rule": {
        "summary": "What would this rule have stopped?",
        "value": {"recorded": True, "permissions": [{"permission": "bash", "pattern": "rm *", "action": "deny"}]},
    },
}


class ChangedResult(Strict):
    index: int = Field(ge=0, description="index of the call in the previous step, from 0")
    text: Annotated[str, StringConstraints(max_length=60_000)]
    failed: bool = False


class RerunBody(Strict):
    """The body of POST /tasks/{id}/rerun; without any field, the whole task runs again."""

    from_step: int = Field(default=1, ge=1, description="everything before this step is kept")
    input: Text | JsonObject | None = Field(
        default=None, description="with step 1: replaces the task's input; with a later step: a further user message"
    )
    prompt: Annotated[str, StringConstraints(min_length=1, max_length=100_000)] | None = Field(
        default=None, description="replaces the agent's instructions, for this rerun only"
    )
    model: ModelName | None = None
    tool_results: list[ChangedResult] = Field(
        default_factory=list, max_length=64, description="replace results of the calls of the previous step"
    )
    agent_version: AgentVersion | None = Field(default=None, description="default: the version that the task used")
    permissions: list[Rule] = Field(default_factory=list, max_length=200, description="added to those of the task")
    config: TaskLimits = TaskLimits()
    recorded: bool = Field(
        default=False, description="use the recorded model responses and tool results: no model is called, no tool runs"
    )


@router.post(
    "/tasks/{task_id}/rerun",
    status_code=202,
    response_model=models.TaskHandle,
    responses=problems(409, 410),
    summary="Run a task again from one of its steps",
)
async def rerun_task(
    call: Submitter,
    task_id: str,
    body: Annotated[RerunBody, json_body(RerunBody, optional=True, check_value=check_input_length, examples=_EXAMPLES)],
    idempotency_key: Key = None,
) -> Response:
    """Creates a task in its own conversation, with the messages and files that the original had before that step. The
    original does not change. With `recorded` no model is called and no tool runs: responses and results are the
    original's, and only rules and limits are new."""
    source = await own_session(call, task_id)
    check_kept(source)
    key = IdempotencyKey.of(call, f"POST /tasks/{task_id}/rerun", body, idempotency_key)
    answer = await rerun(call, source, body, key)
    return Response(answer.body, 202, answer.headers, media_type="application/json")


# Rerun a task from one of its steps. Everything that can be refused is refused before anything is written.

CHANGES = ("input", "prompt", "model", "tool_results", "agent_version", "permissions", "config")
ANSWERED_ALREADY = ("input", "prompt", "model", "tool_results")  # fields that could only change the model's answers


async def rerun(call: Call, source: SessionRow, body: RerunBody, key: IdempotencyKey) -> AcceptedResponse:
    """Accept a new task in a new conversation. The original does not change."""
    if (known := await key.find_answer(call.pool, call.tenant)) is not None:
        return AcceptedResponse(known, replayed=True)
    _check(source, body)
    # everything is checked from here to the write, so that a refused rerun leaves no rows
    task = await _task(call, source, body)
    beginning = await find(call.pool, source, body, task)
    manifest = await _manifest(call, source, body.from_step)
    place = SessionPlace(parent=source, trigger=Trigger.RERUN, await_children=source.await_children)
    prepared = submit.prepare_session(call, task, place).acceptance
    record = prepared.session
    nodes = beginning.copy_nodes(record.id)
    own = None
    if body.prompt is not None:
        # a private version for this one session: a changed prompt must not become the agent's next version
        own = task.agent.model_copy(update={"owner": agents.private_owner(record.id)}), task.definition
    origin = models.Rerun(
        session_id=source.id,
        from_step=body.from_step,
        recorded=body.recorded,
        changed=_list_changes(body),
        layers=len(source.rules),
    )
    session = NewSession.rerun_of(
        source, record, origin, title=_title(source), permissions=body.permissions
    ).model_copy(
        update={
            "agent_owner": own[0].owner if own else task.agent.owner,
            "base_head": nodes[-1].id if nodes else beginning.head,
        }
    )
    acceptance = Acceptance(
        session=session.place(record.ref, created_at=record.created_at),
        manifest=manifest,  # includes the task's files at that time
        budget=prepared.budget,
    )
    return await submit.run_task(
        call,
        Prepared(acceptance, {}),
        key,
        write=lambda acceptance: sessions.accept_rerun(call.pool, acceptance, nodes, own),
    )


def _check(source: SessionRow, body: RerunBody) -> None:
    if not source.status.terminal:
        detail = "Only a task that has ended can be run again; cancel it first, or wait."
        raise Conflict(detail, type="not-terminal", task_status=source.status)
    if body.recorded and (given := [name for name in ANSWERED_ALREADY if name in _list_changes(body)]):
        reason = "recorded answers were given to the original; leave this out, or ask the model again"
        problems = [finding(f"/{name}", "excluded", reason) for name in given]
        raise Invalid("Recorded answers cannot follow from something else.", errors=problems)
    if body.tool_results and body.from_step == 1:
        raise refuse("/tool_results", "excluded", "no step came before the first")


def _list_changes(body: RerunBody) -> list[str]:
    """The names of what the rerun changes."""
    unchanged = RerunBody()
    return [name for name in CHANGES if getattr(body, name) != getattr(unchanged, name)]


async def _task(call: Call, source: SessionRow, body: RerunBody) -> Checked:
    ref, definition = await _agent(call, source, body)
    if body.prompt is not None:
        definition = definition.model_copy(update={"prompt": body.prompt})
    spec = _spec(source, body)
    if body.input is not None and body.from_step == 1:
        await rules.check_input(definition, body.input)
    # the task's own fields were checked when it was submitted
    added = spec.model_copy(update={"permissions": body.permissions, "boundary": None})
    await rules.check_tool_names(call.pool, call.tenant, added, definition)
    limits = _limits(call, source, body, definition)
    models = _models(call, source, body, definition.for_side(definition.first_side))
    sides = session_sides(definition, lambda view: _models(call, source, body, view))
    if source.sides is not None and not source.sides.plain and body.from_step > 1:
        raise refuse("/from_step", "unavailable", "whose turn it was is not part of a rerun", [1])
    if sides is not None and source.sides is not None and body.model is None and body.agent_version is None:
        sides = source.sides
    # recorded answers cost nothing and run no tool, so that neither a price nor a sandbox is needed
    if not body.recorded:
        every = all_models(models, sides)
        await rules.check_models(call.pool, every, call.settings)
        rules.check_prices(limits, spec.config.tree, every, call.services.prices)
        limits = rules.with_default_cost(limits, limits.tokens, every, call.services.prices, call.settings)
        await rules.check_sandbox(call.pool, spec, definition, call.settings)
    retention = spec.config.retention or call.settings.retention_ms
    # not checked again: a caller who may act on the original may use its files
    files = await collect_files(call, spec, checked=True)
    agent = TaskAgent(ref, definition, tenant_has_variables=True)  # assumed, because this request has not read it
    supervision = await rules.supervise(call, spec, agent, source.variables)
    shown = await find_shown(call, spec.context.files) if spec.context.files else NOTHING_SHOWN
    return Checked(spec, ref, definition, models, limits, files, shown, retention, supervision, sides)


async def _agent(call: Call, source: SessionRow, body: RerunBody) -> tuple[AgentRef, AgentDefinition]:
    if body.agent_version is None:
        own = source.agent_ref
        return own, await agents.load(call.pool, own)
    found = await agents.get_version(call.pool, call.tenant, source.agent, body.agent_version)
    if found is None:
        known = await agents.list_versions(call.pool, call.tenant, source.agent)
        raise refuse("/agent_version", "unknown_version", "the agent has none such", known, type="unknown-version")
    return found


def _spec(source: SessionRow, body: RerunBody) -> TaskSpec:
    """The submitted task with the new input; for a subagent, the settings of its parent."""
    known = {name: value for name, value in source.spec.items() if name in TaskSpec.model_fields}
    spec = TaskSpec.model_validate_json(
        json.dumps({"input": source.title or "Rerun", **known, "title": _title(source)})
    )
    if body.input is not None and body.from_step == 1:
        spec = spec.model_copy(update={"input": body.input})
    if body.recorded:  # no judge, no shared budget, no notifications
        config = spec.config.model_copy(update={"tree": None, "notify": []})
        spec = spec.model_copy(update={"acceptance_criteria": [], "constraints": [], "config": config})
    return spec


def _title(source: SessionRow) -> str:
    return f"{source.title.removesuffix(' (rerun)')[:190]} (rerun)"


def _limits(call: Call, source: SessionRow, body: RerunBody, definition: AgentDefinition) -> Limits:
    wanted = body.config
    asked = TaskSpec(agent=source.agent, input="-", config=TaskConfig(**wanted.model_dump()))
    rules.choose_limits(asked, definition, call.settings)  # refuses limits beyond the platform's ceilings
    given = {
        "ttl_ms": wanted.ttl,
        "steps": wanted.max_steps,
        "tokens": wanted.max_tokens,
        "cost_usd": wanted.max_cost_usd,
        "tool_calls": wanted.max_tool_calls,
    }
    return source.limits.model_copy(update={name: value for name, value in given.items() if value is not None})


def _models(call: Call, source: SessionRow, body: RerunBody, definition: AgentDefinition) -> list[str]:
    if body.model is not None:
        return list(dict.fromkeys([body.model, *definition.fallback_models]))
    if body.agent_version is not None:
        return rules.choose_models(_spec(source, body), definition, call.settings)
    return source.models


async def _manifest(call: Call, source: SessionRow, step: int) -> Manifest:
    """The workspace before any tool of the step ran."""
    # by the time of the reply, because the workspace keeps its versions by time and not by step
    moment = await traces.find_reply_time(call.pool, source.tenant, source.id, step)
    if moment is not None:
        return await workspaces.as_of(call.pool, source.tenant, source.workspace_id, moment)
    return (await workspaces.get_all(call.pool, source.tenant, source.workspace_id))[1]


# The start of a rerun: the node before the chosen step, and the messages between that node and the step.

Message = tuple[str, Body]  # author, body


@dataclass(frozen=True)
class RerunOrigin:
    head: str | None  # the node of the original where the rerun branches off
    messages: list[Message] = field(default_factory=list)

    def copy_nodes(self, session_id: str) -> list[Node]:
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
        results = await tool_calls.get_results(pool, source.tenant, before[-1].id)
        messages.insert(0, ("", answer_calls(calls, results)))
    if body.tool_results:
        messages = _with_results(messages, body.tool_results)
    if body.input is not None:
        text, shown = (task.opening, task.shown.blocks) if step == 1 else (_as_text(body.input), [])
        messages = [*(messages[:-1] if step == 1 else messages), ("", UserBody(parts=[TextBlock(text=text), *shown]))]
    if step == 1 and not messages:  # a fork that was prepared but not executed
        raise Invalid("The task has no opening message.", type="unknown-step")
    return RerunOrigin(head, messages)


def _check_step(source: SessionRow, own: list[Node], step: int) -> None:
    steps = sorted({node.step for node in own if _is_reply(node)})
    if not steps or source.step > steps[-1]:
        steps.append(max(1, source.step))  # the step in which it ended without a response
    if step not in steps:
        raise refuse("/from_step", "unknown_step", "the task took no such step", steps[:200], type="unknown-step")


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
    contents = await conversations.message_parts(pool, source.tenant, source.inbox)
    return [("", UserBody(parts=parts)) for parts in contents]


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


# /tasks/{id}/replay: whether the current code makes the same decisions as a task's history.

REPLAY_SECONDS = 60.0
NO_HISTORY = 4  # the exit code of the command
_one_replay = asyncio.Lock()  # a replay takes a whole processor, which requests of this process need


@router.post("/tasks/{task_id}/replay", summary="Replay a task on the current code")
async def replay_task(call: Reader, task_id: str) -> models.ReplayReport:
    """Calls no model and no tool, and changes nothing. An API process runs one replay at a time."""
    session = await session_of(call, task_id)
    # refused at once and not queued, because a client would wait for minutes without a sign
    if _one_replay.locked():
        raise TooMany("Another replay is running at this server.", retry_after=5)
    async with _one_replay:
        found = await _run_replay(session.id)
    return models.ReplayReport(same=all(one.same for one in found), verdicts=found)


async def _run_replay(session_id: str) -> list[models.ReplayVerdict]:
    """A separate process: a replay uses a processor for seconds, and the SDK's threads outlive it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "replay", session_id, "--json"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(REPLAY_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        raise Unavailable("The replay took too long; `errand replay` has no limit.") from None
    finally:
        # also if the client disconnects, which cancels this function: the process would use a processor in vain
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == NO_HISTORY:
        raise NotFound("Temporal no longer has a history of this task.")
    if process.returncode not in (0, 1) or not output:  # the same, or another decision; 1 also for an error
        raise Unavailable("Temporal cannot be reached, or the replay failed; see `errand replay`.")
    return [models.ReplayVerdict(**one) for one in json.loads(output)["verdicts"]]
