"""Rerun a task from one of its steps. Everything that can be refused is refused before anything is written."""

import json

from api.http.auth import Call
from api.http.idempotency import IdempotencyKey
from api.http.problems import finding
from api.reruns import origin as rerun_beginning
from api.schemas.reruns import RerunBody
from api.submission import accept as submit
from api.submission import rules, tools_and_variables
from api.submission.accept import AcceptedResponse, Checked, Prepared, SessionPlace
from domain.agents.definition import AgentDefinition
from domain.agents.sides import all_models, session_sides
from domain.errors import Conflict, Invalid
from domain.sessions.new_session import NewSession, Trigger
from domain.sessions.rerun import Rerun
from domain.sessions.session import AgentRef, Limits
from domain.sessions.session_writes import Acceptance
from domain.task import TaskConfig, TaskSpec
from store import agents, new_sessions, reruns, workspaces
from store.agents import TaskAgent
from store.sessions import SessionRow
from store.workspaces import Manifest

CHANGES = ("input", "prompt", "model", "tool_results", "agent_version", "permissions", "config")
ANSWERED_ALREADY = ("input", "prompt", "model", "tool_results")  # fields that could only change the model's answers


async def rerun(call: Call, source: SessionRow, body: RerunBody, key: IdempotencyKey) -> AcceptedResponse:
    """Accept a new task in a new conversation. The original does not change."""
    if (known := await key.answered(call.pool, call.tenant)) is not None:
        return AcceptedResponse(known, replayed=True)
    _check(source, body)
    # everything is checked from here to the write, so that a refused rerun leaves no rows
    task = await _task(call, source, body)
    beginning = await rerun_beginning.find(call.pool, source, body, task)
    manifest = await _manifest(call, source, body.from_step)
    place = SessionPlace(parent=source, trigger=Trigger.RERUN, await_children=source.await_children)
    prepared = submit.prepare(call, task, place).acceptance
    record = prepared.session
    nodes = beginning.copied(record.id)
    own = None
    if body.prompt is not None:
        # a private version for this one session: a changed prompt must not become the agent's next version
        own = task.agent.model_copy(update={"owner": agents.private_owner(record.id)}), task.definition
    session = NewSession.rerun_of(
        source, record, _origin(source, body), title=_title(source), permissions=body.permissions
    ).model_copy(
        update={
            "agent_owner": own[0].owner if own else task.agent.owner,
            "base_head": nodes[-1].id if nodes else beginning.head,
        }
    )
    acceptance = Acceptance(
        session=session.placed(record.ref, created_at=record.created_at),
        manifest=manifest,  # includes the task's files at that time
        budget=prepared.budget,
    )
    return await submit.run_task(
        call,
        Prepared(acceptance, {}),
        key,
        write=lambda acceptance: new_sessions.accept_rerun(call.pool, acceptance, nodes, own),
    )


def _check(source: SessionRow, body: RerunBody) -> None:
    if not source.status.terminal:
        detail = "Only a task that has ended can be run again; cancel it first, or wait."
        raise Conflict(detail, type="not-terminal", task_status=source.status)
    if body.recorded and (given := [name for name in ANSWERED_ALREADY if name in _given(body)]):
        reason = "recorded answers were given to the original; leave this out, or ask the model again"
        problems = [finding(f"/{name}", "excluded", reason) for name in given]
        raise Invalid("Recorded answers cannot follow from something else.", errors=problems)
    if body.tool_results and body.from_step == 1:
        problem = finding("/tool_results", "excluded", "no step came before the first")
        raise Invalid("The first step has no results to change.", errors=[problem])


def _given(body: RerunBody) -> list[str]:
    """The changes to the original."""
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
        problem = finding("/from_step", "unavailable", "whose turn it was is not part of a rerun", [1])
        raise Invalid("A session with two sides can be rerun from its first step only.", errors=[problem])
    if sides is not None and source.sides is not None and body.model is None and body.agent_version is None:
        sides = source.sides
    # recorded answers cost nothing and run no tool, so that neither a price nor a sandbox is needed
    if not body.recorded:
        every = all_models(models, sides)
        rules.check_prices(limits, spec.config.tree, every, call.services.prices, call.settings)
        limits = rules.with_default_cost(limits, every, call.services.prices, call.settings)
        await rules.check_sandbox(call.pool, spec, definition, call.settings)
    retention = spec.config.retention or call.settings.retention_ms
    # not checked again: a caller who may act on the original may use its files
    files = await rules.manifest(call, spec, checked=True)
    agent = TaskAgent(ref, definition, tenant_has_variables=True)  # assumed, because this request has not read it
    supervision = await tools_and_variables.supervision(call, spec, agent, source.variables)
    return Checked(spec, ref, definition, models, limits, files, retention, supervision, sides)


async def _agent(call: Call, source: SessionRow, body: RerunBody) -> tuple[AgentRef, AgentDefinition]:
    if body.agent_version is None:
        own = source.agent_ref
        return own, await agents.load(call.pool, own)
    found = await agents.at_version(call.pool, call.tenant, source.agent, body.agent_version)
    if found is None:
        known = await agents.versions(call.pool, call.tenant, source.agent)
        problem = finding("/agent_version", "unknown_version", "the agent has no such version", known)
        raise Invalid("The agent has no such version.", type="unknown-version", errors=[problem])
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
    rules.limits(asked, definition, call.settings)  # refuses limits beyond the platform's ceilings
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
        return rules.models(_spec(source, body), definition, call.settings)
    return source.models


async def _manifest(call: Call, source: SessionRow, step: int) -> Manifest:
    """The workspace before any tool of the step ran."""
    # by the time of the reply, because the workspace keeps its versions by time and not by step
    moment = await reruns.replied_at(call.pool, source.tenant, source.id, step)
    if moment is not None:
        return await workspaces.as_of(call.pool, source.tenant, source.workspace_id, moment)
    return (await workspaces.get(call.pool, source.tenant, source.workspace_id))[1]


def _origin(source: SessionRow, body: RerunBody) -> Rerun:
    return Rerun(
        session_id=source.id,
        from_step=body.from_step,
        recorded=body.recorded,
        changed=_given(body),
        layers=len(source.rules),
    )
