"""Rerunning a task from one of its steps: everything that speaks against it is said before anything is written."""

import json
from functools import partial
from typing import Any

from api.auth import Call
from api.http.idempotency import IdempotencyKey
from api.http.problems import finding
from api.reruns import origin as rerun_beginning
from api.schemas.reruns import RerunBody
from api.services import Services
from api.submission import accept as submit
from api.submission import rules
from api.submission import start as starting
from api.submission import tools_and_variables as declared
from api.submission.accept import AcceptedResponse, Checked, Prepared, SessionPlace
from domain.agents.definition import AgentDefinition
from domain.errors import Conflict, Invalid
from domain.policy.rules import Action
from domain.sessions.rerun import Rerun
from domain.sessions.session import AgentRef, Limits
from domain.task import TaskConfig, TaskSpec
from store import agents, reruns, workspaces
from store.sessions import SessionRow
from store.workspaces import Manifest

PRIVATE = "rerun"  # owner of definitions that belong to one rerun
CHANGES = ("input", "prompt", "model", "tool_results", "agent_version", "permissions", "config")
ANSWERED_ALREADY = ("input", "prompt", "model", "tool_results")  # what could only change the model's answers


async def rerun(call: Call, source: SessionRow, body: RerunBody, key: IdempotencyKey) -> AcceptedResponse:
    """A new task in a conversation of its own; of the original nothing is touched."""
    if (known := await key.answered(call.pool, call.tenant)) is not None:
        return AcceptedResponse(known, replayed=True)
    _check(source, body)
    task = await _task(call, source, body)
    beginning = await rerun_beginning.find(call.pool, source, body, task)
    place = SessionPlace(
        parent=source,
        manifest=await _manifest(call.services, source, body.from_step),
        trigger="rerun",
        await_children=source.await_children,
    )
    prepared = submit.prepare(call, task, place)
    session_id = prepared.ref.session_id
    nodes = beginning.copied(session_id)
    private = task.agent.model_copy(update={"owner": f"{PRIVATE}/{session_id}"}) if body.prompt is not None else None
    document = prepared.document | _kept(source, body, private or task.agent)
    document["base_head"] = nodes[-1].id if nodes else beginning.head
    document["manifest"] = json.dumps(place.manifest)  # the task's files are in it, as they were by then
    response = submit.handle(call.services, prepared)
    accepting = partial(
        reruns.accept,
        nodes=nodes,
        rerun=_origin(source, body),
        own=(private, task.definition) if private else None,
    )
    accepted = await submit.accept(
        call, Prepared(prepared.ref, document, [], {}, prepared.tree), key, response, by=accepting
    )
    if accepted.replay:
        return AcceptedResponse(accepted.replay["response"], replayed=True)
    await starting.start(call.services, prepared.ref)
    return AcceptedResponse(response)


def _check(source: SessionRow, body: RerunBody) -> None:
    if not source.status.terminal:
        detail = "Only a task that has ended can be run again; cancel it first, or wait."
        raise Conflict(detail, type="not-terminal", task_status=source.status)
    if body.recorded and (given := [name for name in ANSWERED_ALREADY if name in _given(body)]):
        words = "recorded answers were given to the original; leave this out, or ask the model again"
        problems = [finding(f"/{name}", "excluded", words) for name in given]
        raise Invalid("Recorded answers cannot follow from something else.", errors=problems)
    if body.tool_results and body.from_step == 1:
        problem = finding("/tool_results", "excluded", "no step came before the first")
        raise Invalid("The first step has no results to change.", errors=[problem])


def _given(body: RerunBody) -> list[str]:
    """What differs from the original."""
    unchanged = RerunBody()
    return [name for name in CHANGES if getattr(body, name) != getattr(unchanged, name)]


async def _task(call: Call, source: SessionRow, body: RerunBody) -> Checked:
    ref, definition = await _agent(call, source, body)
    if body.prompt is not None:
        definition = definition.model_copy(update={"prompt": body.prompt})
    spec = _spec(source, body)
    if body.input is not None and body.from_step == 1:
        rules.check_input(definition, body.input)
    # what the task itself named was checked when it was submitted
    added = spec.model_copy(update={"permissions": body.permissions, "boundary": None})
    await rules.check_tool_names(call.pool, added, definition)
    limits = _limits(call.services, source, body, definition)
    models = _models(call.services, source, body, definition)
    if not body.recorded:
        rules.check_prices(limits, spec.config.tree, models, call.services.prices, call.settings)
        await rules.check_sandbox(call.pool, spec, definition, call.settings)
    retention = spec.config.retention or call.settings.retention_ms
    files = await rules.manifest(call.pool, call.tenant, spec)
    columns = await declared.columns(call.pool, spec, definition, source.variables)
    return Checked(spec, ref, definition, models, limits, files, retention, columns)


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
    """The task as it was submitted, with the new input; of a subagent, what its parent decided."""
    known = {name: value for name, value in source.spec.items() if name in TaskSpec.model_fields}
    spec = TaskSpec.model_validate_json(
        json.dumps({"input": source.title or "Rerun", **known, "title": _title(source)})
    )
    if body.input is not None and body.from_step == 1:
        spec = spec.model_copy(update={"input": body.input})
    if body.recorded:  # nothing is judged, nothing is spent of what is shared, and nobody is told
        config = spec.config.model_copy(update={"tree": None, "notify": []})
        spec = spec.model_copy(update={"acceptance_criteria": [], "config": config})
    return spec


def _title(source: SessionRow) -> str:
    return f"{source.title.removesuffix(' (rerun)')[:190]} (rerun)"


def _limits(services: Services, source: SessionRow, body: RerunBody, definition: AgentDefinition) -> Limits:
    wanted = body.config
    asked = TaskSpec(agent=source.agent, input="-", config=TaskConfig(**wanted.model_dump()))
    rules.limits(asked, definition, services.settings)  # refuses what is beyond the platform's ceilings
    given = {
        "ttl_ms": wanted.ttl,
        "steps": wanted.max_steps,
        "tokens": wanted.max_tokens,
        "cost_usd": wanted.max_cost_usd,
        "tool_calls": wanted.max_tool_calls,
    }
    return source.limits.model_copy(update={name: value for name, value in given.items() if value is not None})


def _models(services: Services, source: SessionRow, body: RerunBody, definition: AgentDefinition) -> list[str]:
    if body.model is not None:
        return list(dict.fromkeys([body.model, *definition.fallback_models]))
    if body.agent_version is not None:
        return rules.models(_spec(source, body), definition, services.settings)
    return source.models


async def _manifest(services: Services, source: SessionRow, step: int) -> Manifest:
    """The workspace as it was before any tool of the step ran."""
    moment = await reruns.replied_at(services.pool, source.tenant, source.id, step)
    if moment is not None:
        return await workspaces.as_of(services.pool, source.tenant, source.workspace_id, moment)
    return (await workspaces.get(services.pool, source.tenant, source.workspace_id))[1]


def _kept(source: SessionRow, body: RerunBody, agent: AgentRef) -> dict[str, Any]:
    """What the rerun has from the original's row, and the rules it works under."""
    layers = [*source.rules, *([body.permissions] if body.permissions else [])]
    return {
        "agent_owner": agent.owner,
        "title": _title(source),
        "tools": source.tools,
        "rules": json.dumps([[rule.model_dump(mode="json") for rule in layer] for layer in layers]),
        "may_ask": source.may_ask or any(rule.action is Action.ASK for rule in body.permissions),
        "approval_required": source.approval_required and not body.recorded,
    }


def _origin(source: SessionRow, body: RerunBody) -> Rerun:
    return Rerun(
        session_id=source.id,
        from_step=body.from_step,
        recorded=body.recorded,
        changed=_given(body),
        layers=len(source.rules),
    )
