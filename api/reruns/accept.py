"""Rerunning a task from one of its steps: everything that speaks against it is said before anything is written."""

import json
from functools import partial
from typing import Any

from api.auth import Caller
from api.http.idempotency import IdempotencyKey
from api.http.problems import finding
from api.reruns import origin as rerun_beginning
from api.reruns.body import RerunBody
from api.services import Services
from api.submission import accept as submit
from api.submission import rule_names, rules
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


async def rerun(
    parts: Services, caller: Caller, source: SessionRow, wish: RerunBody, once: IdempotencyKey
) -> AcceptedResponse:
    """A new task in a conversation of its own; of the original nothing is touched."""
    if (known := await once.answered(parts.pool, caller.tenant)) is not None:
        return AcceptedResponse(known, replayed=True)
    _check(source, wish)
    task = await _task(parts, caller, source, wish)
    beginning = await rerun_beginning.find(parts.pool, source, wish, task)
    place = SessionPlace(
        parent=source,
        manifest=await _manifest(parts, source, wish.from_step),
        trigger="rerun",
        await_children=source.await_children,
    )
    prepared = submit.prepare(parts, caller, task, place)
    session_id = prepared.ref.session_id
    nodes = beginning.copied(session_id)
    private = task.agent.model_copy(update={"owner": f"{PRIVATE}/{session_id}"}) if wish.prompt is not None else None
    document = prepared.document | _kept(source, wish, private or task.agent)
    document["base_head"] = nodes[-1].id if nodes else beginning.head
    document["manifest"] = json.dumps(place.manifest)  # the task's files are in it, as they were by then
    response = submit.handle(parts, prepared)
    accepting = partial(
        reruns.accept,
        nodes=nodes,
        rerun=_origin(source, wish),
        own=(private, task.definition) if private else None,
    )
    accepted = await submit.accept(
        parts, caller, Prepared(prepared.ref, document, [], {}, prepared.tree), once, response, by=accepting
    )
    if accepted.replay:
        return AcceptedResponse(accepted.replay["response"], replayed=True)
    await starting.start(parts, prepared.ref)
    return AcceptedResponse(response)


def _check(source: SessionRow, wish: RerunBody) -> None:
    if not source.status.terminal:
        detail = "Only a task that has ended can be run again; cancel it first, or wait."
        raise Conflict(detail, type="not-terminal", task_status=source.status)
    if wish.recorded and (given := [name for name in ANSWERED_ALREADY if name in _given(wish)]):
        words = "recorded answers were given to the original; leave this out, or ask the model again"
        problems = [finding(f"/{name}", "excluded", words) for name in given]
        raise Invalid("Recorded answers cannot follow from something else.", errors=problems)
    if wish.tool_results and wish.from_step == 1:
        problem = finding("/tool_results", "excluded", "no step came before the first")
        raise Invalid("The first step has no results to change.", errors=[problem])


def _given(wish: RerunBody) -> list[str]:
    """What differs from the original."""
    unchanged = RerunBody()
    return [name for name in CHANGES if getattr(wish, name) != getattr(unchanged, name)]


async def _task(parts: Services, caller: Caller, source: SessionRow, wish: RerunBody) -> Checked:
    ref, definition = await _agent(parts, caller, source, wish)
    if wish.prompt is not None:
        definition = definition.model_copy(update={"prompt": wish.prompt})
    spec = _spec(source, wish)
    if wish.input is not None and wish.from_step == 1:
        rules.check_input(definition, wish.input)
    # what the task itself named was checked when it was submitted
    added = spec.model_copy(update={"permissions": wish.permissions, "boundary": None})
    await rule_names.check(parts.pool, added, definition)
    limits = _limits(parts, source, wish, definition)
    models = _models(parts, source, wish, definition)
    if not wish.recorded:
        rules.check_prices(limits, spec.config.tree, models, parts.prices, parts.settings)
        await rules.check_sandbox(parts.pool, spec)
    retention = spec.config.retention or parts.settings.retention_ms
    files = await rules.manifest(parts.pool, caller.tenant, spec)
    columns = await declared.columns(parts.pool, spec, definition, source.variables)
    return Checked(spec, ref, definition, models, limits, files, retention, columns)


async def _agent(
    parts: Services, caller: Caller, source: SessionRow, wish: RerunBody
) -> tuple[AgentRef, AgentDefinition]:
    if wish.agent_version is None:
        own = source.agent_ref
        return own, await agents.load(parts.pool, own)
    found = await agents.at_version(parts.pool, caller.tenant, source.agent, wish.agent_version)
    if found is None:
        known = await agents.versions(parts.pool, caller.tenant, source.agent)
        problem = finding("/agent_version", "unknown_version", "the agent has no such version", known)
        raise Invalid("The agent has no such version.", type="unknown-version", errors=[problem])
    return found


def _spec(source: SessionRow, wish: RerunBody) -> TaskSpec:
    """The task as it was submitted, with the new input; of a subagent, what its parent decided."""
    known = {name: value for name, value in source.spec.items() if name in TaskSpec.model_fields}
    spec = TaskSpec.model_validate_json(
        json.dumps({"input": source.title or "Rerun", **known, "title": _title(source)})
    )
    if wish.input is not None and wish.from_step == 1:
        spec = spec.model_copy(update={"input": wish.input})
    if wish.recorded:  # nothing is judged, nothing is spent of what is shared, and nobody is told
        config = spec.config.model_copy(update={"tree": None, "notify": []})
        spec = spec.model_copy(update={"acceptance_criteria": [], "config": config})
    return spec


def _title(source: SessionRow) -> str:
    return f"{source.title.removesuffix(' (rerun)')[:190]} (rerun)"


def _limits(parts: Services, source: SessionRow, wish: RerunBody, definition: AgentDefinition) -> Limits:
    wanted = wish.config
    asked = TaskSpec(agent=source.agent, input="-", config=TaskConfig(**wanted.model_dump()))
    rules.limits(asked, definition, parts.settings)  # refuses what is beyond the platform's ceilings
    given = {
        "ttl_ms": wanted.ttl,
        "steps": wanted.max_steps,
        "tokens": wanted.max_tokens,
        "cost_usd": wanted.max_cost_usd,
        "tool_calls": wanted.max_tool_calls,
    }
    return source.limits.model_copy(update={name: value for name, value in given.items() if value is not None})


def _models(parts: Services, source: SessionRow, wish: RerunBody, definition: AgentDefinition) -> list[str]:
    if wish.model is not None:
        return list(dict.fromkeys([wish.model, *definition.fallback_models]))
    if wish.agent_version is not None:
        return rules.models(_spec(source, wish), definition, parts.settings)
    return source.models


async def _manifest(parts: Services, source: SessionRow, step: int) -> Manifest:
    """The workspace as it was before any tool of the step ran."""
    moment = await reruns.replied_at(parts.pool, source.tenant, source.id, step)
    if moment is not None:
        return await workspaces.as_of(parts.pool, source.tenant, source.workspace_id, moment)
    return (await workspaces.get(parts.pool, source.tenant, source.workspace_id))[1]


def _kept(source: SessionRow, wish: RerunBody, agent: AgentRef) -> dict[str, Any]:
    """What the rerun has from the original's row, and the rules it works under."""
    layers = [*source.rules, *([wish.permissions] if wish.permissions else [])]
    return {
        "agent_owner": agent.owner,
        "title": _title(source),
        "tools": source.tools,
        "rules": json.dumps([[rule.model_dump(mode="json") for rule in layer] for layer in layers]),
        "may_ask": source.may_ask or any(rule.action is Action.ASK for rule in wish.permissions),
        "approval_required": source.approval_required and not wish.recorded,
    }


def _origin(source: SessionRow, wish: RerunBody) -> Rerun:
    return Rerun(
        session_id=source.id,
        from_step=wish.from_step,
        recorded=wish.recorded,
        changed=_given(wish),
        layers=len(source.rules),
    )
