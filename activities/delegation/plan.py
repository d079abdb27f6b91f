"""Plans what a delegation call starts: one `Spawn` for every tool, or the reason why nothing may start.

Read `Spawn`, then `Planner.plan`: read the arguments, choose models, check the budget, look up variables and files,
bound the child by what its parent may and has left, and write its session.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from activities.delegation.messages import Subagents
from activities.model.models import Models
from activities.tools.builtin import pull_requests, read_file
from activities.tools.offered import can_be_subagent, description_of, find_enabled, line_tools, subagent_tools
from activities.tools.tool import Tool
from domain.agents.definition import (
    AgentDefinition,
    Mode,
    Sides,
    SubagentRef,
    SubagentTool,
    WorkspaceSharing,
    session_sides,
)
from domain.agents.variables import NeededVariable, drop_shared, find_needed, inherit_values, resolve_values
from domain.conversations.mailbox import Attachment, AttachmentRefused, attach_files, paths_of, rewrite_paths
from domain.conversations.subagent_texts import (
    another_agent,
    name_taken,
    no_address,
    not_found,
    too_many_instances,
    unknown_subagent,
    was_terminated,
)
from domain.conversations.subagents import DEFAULT_SCHEMA, TERMINATED, DelegationCall, DelegationTool, SubagentTerms
from domain.ids import derive_id
from domain.json_object import JsonObject
from domain.json_schema import errors, run_check
from domain.policy.rules import Action, Rule, path_parts, verdict
from domain.sessions.new_session import NewSession, Supervision
from domain.sessions.session import AgentRef, DeliveryMode, Limits
from store import agents, conversations, sessions, threads, variables, workspaces
from store.agents import load_view
from store.database import Pool
from store.sessions import SessionRow
from store.threads import Child

# tools of the subagents that a prompt configures; the others name agents that a definition lists
CONFIGURED = frozenset({DelegationTool.SUBAGENT, DelegationTool.SUBAGENT_CREATE, DelegationTool.SUBAGENT_MESSAGE})

ATTEMPT_TIME = 0.9  # of what is left to its task
NOT_IN_ATTEMPTS = frozenset(tool.name for tool in pull_requests.TOOLS)  # only what was chosen is published


class ChildRefused(Exception):
    """A child may not be started; the text is for the model."""

    def __init__(self, text: str, rule: Rule | None = None) -> None:
        super().__init__(text)
        self.rule = rule  # the rule that forbids it


@dataclass(frozen=True)
class Spawner:
    """Who makes a call: its session, and the agents from the session's own to the one of the line."""

    call: DelegationCall
    session: SessionRow
    agents: list[AgentDefinition]

    @property
    def rules(self) -> list[list[Rule]]:
        return [*(agent.permissions for agent in self.agents), *self.session.rules]


@dataclass(frozen=True)
class Spawn:
    """An agent that is given work, whatever the tool of the call. The tools differ in how this is read from their
    arguments; everything after that is the same."""

    kind: DelegationTool
    agent: AgentRef
    definition: AgentDefinition
    name: str
    description: str
    reports: DeliveryMode  # how its outcome is delivered
    waits: bool  # the call has its result; else it is answered as soon as the child has started
    resumes: str | None = None  # the thread that it continues
    prompt: str | None = "prompt"  # the argument with its first message
    within: str | None = None  # the argument that holds the others
    reference: SubagentRef | None = None  # how the caller's definition lists the agent
    configured: SubagentTool | None = None  # how the caller's prompt configures it
    terms: SubagentTerms | None = None  # those of a configured one
    instance: Child | None = None  # the existing one that the message is for
    given: JsonObject = field(default_factory=dict)  # the arguments that the child keeps
    tags: Sequence[str] = ()

    @property
    def inline(self) -> bool:
        """Whether it is a line of the caller's own session."""
        return self.kind is DelegationTool.DELEGATE

    @property
    def shares_workspace(self) -> bool:
        return self.configured is None or self.configured.environment is WorkspaceSharing.INHERIT


@dataclass(frozen=True)
class Planned:
    spawn: Spawn
    models: list[str]
    session: NewSession | None  # None: an inline delegate has no separate session
    attachments: list[Attachment]  # files sent with its message
    needs: list[NeededVariable]  # missing in its whole graph


@dataclass
class Planner:
    _pool: Pool
    _tools: dict[str, Tool]
    _models: Models
    _subagents: Subagents
    _default_depth: int

    async def load_spawner(self, call: DelegationCall) -> Spawner:
        session = await sessions.load(self._pool, call.ref)
        return Spawner(call, session, [await load_view(self._pool, agent) for agent in (*call.above, call.agent)])

    async def find_max_depth(self, call: DelegationCall) -> int:
        """The smallest limit on the path: each agent may limit the levels below it, and the root's limit applies to
        all."""
        path = await threads.find_path_above(self._pool, call.ref.tenant, call.ref.session_id)
        root = (await load_view(self._pool, path[-1][1])).max_depth or self._default_depth
        path += [(path[0][0], agent) for agent in (*call.above[1:], call.agent)]  # inline lines do not add a level
        limited = [(depth, (await load_view(self._pool, agent)).max_depth) for depth, agent in path]
        return min([root, *(depth + below for depth, below in limited if below)])

    async def plan(
        self, by: Spawner, kind: DelegationTool, tool: str, arguments: Any, pending: Sequence[Planned]
    ) -> Planned:
        """`tool`: its name, which may be an agent's name; `pending`: the other children that the same response
        starts."""
        call, parent = by.call, by.session
        if kind is DelegationTool.ATTEMPT:
            return await self._plan_attempt(by, arguments.model_extra["number"])
        if kind in CONFIGURED:
            spawn = await self._read_configured(by, kind, tool, arguments, pending)
        else:
            spawn = await self._read_listed(by, kind, arguments)
        child, instance = spawn.definition, spawn.instance
        sides, models = await self._choose_models(call, child)
        if spawn.inline and sides is not None and not sides.inline:
            raise ChildRefused(f"'{child.name}' has sides and needs a separate session: use task instead.")
        before = await sessions.get(self._pool, call.ref.tenant, instance.session_id) if instance else None
        values = await self._find_values(by, spawn, before)
        workspace_id = parent.workspace_id if spawn.shares_workspace else None  # None: a new one
        workspace_id = before.workspace_id if before else workspace_id
        files = await self._attach_files(by, spawn, arguments, workspace_id) if spawn.configured else []
        config, label = spawn.configured, spawn.name if spawn.configured else spawn.description or spawn.name
        supervision, limits = plan_supervision(by, spawn, values), reduce_limits(parent, child)
        session = None
        if not spawn.inline:
            session = NewSession.for_child(
                parent,
                spawn.agent,
                supervision,
                tool=kind,
                name=spawn.name,
                label=label,
                models=models,
                sides=sides,
                tools=subagent_tools(self._tools, child),
                limits=limits,
                terms=spawn.terms,
                arguments=rewrite_paths(spawn.given, files),
                tags=spawn.tags,
                workspace_id=workspace_id,
            )
        needs: list[NeededVariable] = []
        if config:
            graph = await agents.find_reachable(self._pool, call.ref.tenant, child)
            needs = await asyncio.to_thread(find_needed, child, values, graph)  # takes long for a large graph
        return Planned(spawn, models, session, files, needs)

    async def _plan_attempt(self, by: Spawner, number: int) -> Planned:
        """The task itself once more. Its time ends before the task's, so that one of them can be chosen."""
        task, definition = by.session, by.agents[-1]
        left = (task.deadline - datetime.now(UTC)).total_seconds() * 1_000
        limits = task.limits.model_copy(update={"ttl_ms": max(1_000, int(left * ATTEMPT_TIME))})
        tools = [name for name in line_tools(self._tools, by.agents, task.tools) if name not in NOT_IN_ATTEMPTS]
        session = NewSession.attempt_of(task, number, limits=limits, tools=tools)
        name = f"attempt {number}"
        spawn = Spawn(
            DelegationTool.ATTEMPT, task.agent_ref, definition, name, "", reports=DeliveryMode.HOLD, waits=True
        )
        return Planned(spawn, task.models, session, [], [])

    async def _find_values(self, by: Spawner, spawn: Spawn, before: SessionRow | None) -> dict[str, str]:
        """The child's variables as its thread inherits them."""
        values = inherit_values(by.session.variables, by.agents, spawn.definition, spawn.configured)
        if before is not None:
            own = await variables.values_of_thread(self._pool, by.call.ref.tenant, before.thread_id)
            values = {**drop_shared(before.variables), **values, **own}
        return values

    async def _choose_models(self, call: DelegationCall, child: AgentDefinition) -> tuple[Sides | None, list[str]]:
        sides = session_sides(child, lambda view: [view.model or call.model, *view.fallback_models])
        models = sides.models[sides.first] if sides else [child.model or call.model, *child.fallback_models]
        for first in {models[0]: None} | {own[0]: None for own in (sides.models if sides else {}).values()}:
            if problem := await self._models.problem(first):
                raise ChildRefused(f"The launch failed: {problem} Nothing was started.")
        return sides, models

    # tools that name one of the agents that the caller's definition lists

    async def _read_listed(self, by: Spawner, kind: DelegationTool, arguments: Any) -> Spawn:
        definition = by.agents[-1]
        name = wanted = arguments.agent
        if kind is DelegationTool.ASYNC_DELEGATE:
            name, wanted = arguments.name, arguments.agent or arguments.name
        elif kind is DelegationTool.START_BACKGROUND:
            only = definition.subagents[0].agent if len(definition.subagents) == 1 else ""
            name, wanted = arguments.name, arguments.agent or only
        agent, child = await self._find_listed(by, kind, wanted)
        reference = definition.subagent(wanted)
        conversation = await conversations.get(self._pool, by.call.ref.tenant, by.call.ref.conversation_id)
        delivery = (reference.delivery if reference else None) or (conversation.delivery if conversation else None)
        return Spawn(
            kind,
            agent,
            child,
            name,
            getattr(arguments, "description", ""),
            reports=DeliveryMode.REPORT if kind is DelegationTool.START_BACKGROUND else delivery or DeliveryMode.HOLD,
            waits=kind is DelegationTool.TASK,
            resumes=await self._find_continued(by, kind, arguments, wanted),
            reference=reference,
        )

    async def _find_listed(self, by: Spawner, kind: DelegationTool, wanted: str) -> tuple[AgentRef, AgentDefinition]:
        """A permitted subagent by name. For any other name the refusal lists the permitted ones."""
        rules, tool = by.rules, self._tools[kind]
        found: dict[str, tuple[AgentRef, AgentDefinition]] = {}
        for reference in by.agents[-1].subagents:
            known = await agents.find_current(self._pool, by.call.ref.tenant, reference.agent)
            allowed = verdict(rules, tool, [reference.agent]).action is not Action.DENY
            if known is not None and known[1].mode is not Mode.PRIMARY and allowed:
                found[reference.agent] = known
        if wanted not in found:
            text, judged = unknown_subagent(wanted, sorted(found)), verdict(rules, tool, [wanted])
            if by.agents[-1].subagent(wanted) is None or judged.action is not Action.DENY:
                raise ChildRefused(text)
            raise ChildRefused(f"{text} A rule forbids it: {judged.because}.", judged.rule)
        return found[wanted]

    async def _find_continued(self, by: Spawner, kind: DelegationTool, arguments: Any, wanted: str) -> str | None:
        """The thread to continue, which keeps its agent. If only a name is given, the conversation finds the thread."""
        if kind is DelegationTool.ASYNC_DELEGATE:
            tenant, thread = by.call.ref.tenant, by.session.thread_id
            named = await threads.find_child_by_name(self._pool, tenant, thread, arguments.name)
            if named is not None and named.agent != wanted:
                raise ChildRefused(another_agent(named.session_id, named.agent, "use another name for a new one"))
        name = {DelegationTool.TASK: "task_id", DelegationTool.START_BACKGROUND: "agent_id"}.get(kind)
        known = getattr(arguments, name) if name else None
        if known is None:
            return None
        child = await self._subagents.child(by.call.ref, known)
        if child is None:
            raise ChildRefused(not_found(known))
        if child.agent != wanted:
            raise ChildRefused(another_agent(child.session_id, child.agent, f"leave {name} out for a new one"))
        return child.thread_id

    # tools of the subagents that the caller's prompt configures

    async def _read_configured(
        self, by: Spawner, kind: DelegationTool, tool: str, arguments: Any, pending: Sequence[Planned]
    ) -> Spawn:
        instance = None
        wanted = tool
        if kind is DelegationTool.SUBAGENT_MESSAGE:
            instance = await self._find_instance(by.call, arguments.target)
            wanted = instance.agent
        elif kind is DelegationTool.SUBAGENT_CREATE:
            wanted = arguments.agent
        config, ref, child = await self._find_configured(by, kind, wanted)
        given: JsonObject = arguments.model_dump(exclude_none=True)
        if kind is DelegationTool.SUBAGENT_CREATE:
            await self._check_instances(by, config, arguments.name, pending)
            given = arguments.arguments or {config.init_user_message_property or "message": arguments.message}
        if kind is not DelegationTool.SUBAGENT_MESSAGE:
            schema = child.input_schema or DEFAULT_SCHEMA
            if found := await run_check(errors, schema, given, most=5):
                lines = [f"{'.'.join(map(str, one.absolute_path)) or 'arguments'}: {one.message}" for one in found]
                raise ChildRefused("The arguments do not fit; nothing was started.\n" + "\n".join(lines))
        own_name = getattr(arguments, "name", None) or _read_name(config, given)
        nested = kind is DelegationTool.SUBAGENT_CREATE and arguments.arguments is not None
        mapped = config.init_user_message_property if nested or kind is DelegationTool.SUBAGENT else "message"
        terms = SubagentTerms.of(config, description_of(child), by.call.node)
        return Spawn(
            kind,
            ref,
            child,
            instance.name if instance else own_name or wanted,
            terms.description,
            reports=DeliveryMode.EXPLICIT if terms.explicit else DeliveryMode.WAKE,
            waits=terms.blocking,
            resumes=instance.thread_id if instance else None,
            prompt=mapped,
            within="arguments" if nested else None,
            configured=config,
            terms=terms,
            instance=instance,
            given=given,
            tags=[f"name:{own_name}"] if own_name and instance is None else (),
        )

    async def _attach_files(
        self, by: Spawner, spawn: Spawn, arguments: Any, workspace_id: str | None
    ) -> list[Attachment]:
        """The files that the call attaches, with their paths at the child. A file that its parent may not read is
        refused."""
        assert spawn.configured is not None
        call, tenant = by.call, by.call.ref.tenant
        named = spawn.given.get(spawn.configured.init_attachments_property or "attachments")
        try:
            if spawn.kind is not DelegationTool.SUBAGENT:
                more = paths_of(named) if spawn.kind is DelegationTool.SUBAGENT_CREATE else []
                named = [*arguments.attachments, *more]
            paths = paths_of(named)
            if not paths:
                return []
            _, manifest = await workspaces.get(self._pool, tenant, by.session.workspace_id)
            shared = workspace_id == by.session.workspace_id
            found = attach_files(paths, manifest, None if shared else derive_id(call.node, *call.indexes, *paths)[-8:])
        except AttachmentRefused as error:
            raise ChildRefused(str(error)) from None
        for one in found:
            judged = verdict(by.rules, self._tools[read_file.TOOL.name], ["/".join(path_parts(one.given))])
            if judged.action is not Action.ALLOW:
                raise ChildRefused(
                    f"A rule keeps {one.given!r} from you: {judged.because}. Nothing was sent.", judged.rule
                )
        return found

    async def _find_instance(self, call: DelegationCall, target: str) -> Child:
        found = await self._subagents.instance(call.ref, target)
        if found is None or found.terms is None:
            raise ChildRefused(f"There is no subagent {target!r}. Nothing was sent.")
        if not found.terms.resumable:
            raise ChildRefused(no_address(found.name))
        if await threads.is_terminated(self._pool, call.ref.tenant, found.thread_id):
            raise ChildRefused(was_terminated(found.name, found.thread_id))
        return found

    async def _find_configured(
        self, by: Spawner, kind: DelegationTool, wanted: str
    ) -> tuple[SubagentTool, AgentRef, AgentDefinition]:
        """The subagent with the prompt's settings and its current definition; disabled and hidden ones are not
        found."""
        call, agents_above, parent = by.call, by.agents, by.session
        resumable = kind is not DelegationTool.SUBAGENT
        there = {
            one.name: one
            for one in find_enabled(agents_above[-1], parent.variables)
            if (not one.hidden or (call.immediate and one.immediate)) and (one.resumable is not None) == resumable
        }
        found = await agents.find_current(self._pool, call.ref.tenant, wanted) if wanted in there else None
        if found is None or not can_be_subagent(found[1]):
            raise ChildRefused(unknown_subagent(wanted, sorted(there)))
        judged = verdict(by.rules, self._tools[DelegationTool.SUBAGENT_CREATE], [wanted])
        if judged.action is Action.DENY:
            raise ChildRefused(f"A rule forbids the subagent '{wanted}': {judged.because}.", judged.rule)
        return there[wanted], *found

    async def _check_instances(self, by: Spawner, config: SubagentTool, name: str, pending: Sequence[Planned]) -> None:
        """Refuse an instance beyond the most that there may be, or with a name that is taken."""
        assert config.resumable is not None
        call, parent = by.call, by.session
        # made by an earlier attempt of this call
        own = {derive_id(call.node, "child", index) for index in call.indexes}
        listed = await threads.get_registry(self._pool, call.ref.tenant, call.ref.conversation_id, parent.thread_id)
        alive = [one for one in listed if one.resumable and one.reference not in own]
        most = config.resumable.max_instances
        same = [one for one in alive if one.agent == config.name and one.status != TERMINATED]
        names = [one.name for one in same]
        waiting = await variables.find_waiting_names(self._pool, call.ref.tenant, parent.thread_id, config.name)
        if name in waiting:  # a repeated request for the same instance gets the same result
            return
        names += waiting
        names += [
            one.spawn.name for one in pending if one.spawn.agent.name == config.name and one.spawn.resumes is None
        ]
        if most is not None and len(names) >= most:
            raise ChildRefused(too_many_instances(config.name, most, names))
        taken = next((one for one in alive if one.thread_name == name), None)
        if taken is not None and taken.status == TERMINATED:
            raise ChildRefused(f"{was_terminated(name, taken.reference)} Use another name. Nothing was started.")
        if taken is not None:
            raise ChildRefused(name_taken(name, taken.reference))


def _read_name(config: SubagentTool, given: JsonObject) -> str | None:
    value = given.get(config.init_agent_name_property or "name")
    return value.strip()[:63] if isinstance(value, str) and value.strip() else None


def reduce_limits(parent: SessionRow, child: AgentDefinition) -> Limits:
    """The child's own limits, reduced to what its parent has left."""
    given = {key: value for key, value in child.limits.model_dump().items() if value is not None}
    own = Limits(**given, **{name: getattr(parent.limits, name) for name in ("repeats", "repeats_warning", "denied")})
    tokens, cost, calls = own.tokens, own.cost_usd, own.tool_calls
    if parent.limits.tokens is not None:
        left = parent.limits.tokens - parent.usage.tokens
        tokens = min(tokens or left, left)
    if parent.limits.cost_usd is not None:
        remaining = parent.limits.cost_usd - (parent.usage.cost_usd or 0)
        cost = min(cost or remaining, remaining)
    if parent.limits.tool_calls is not None:
        unused = parent.limits.tool_calls - parent.usage.tool_invocations
        calls = min(calls or unused, unused)
    if any(one is not None and one <= 0 for one in (tokens, cost, calls)):
        raise ChildRefused("The budget is spent; nothing was started.")
    return own.model_copy(update={"tokens": tokens, "cost_usd": cost, "tool_calls": calls})


def plan_supervision(by: Spawner, spawn: Spawn, values: dict[str, str]) -> Supervision:
    """The caller's rules bind the child too. It may ask people only if the caller's definition says so; an inline child
    never waits. A configured one was asked for its variables before."""
    child, may_ask = spawn.definition, spawn.reference is not None and spawn.reference.may_ask
    known = resolve_values(child, values)
    missing = {name: one.description for name, one in child.all_variables.items() if one.required and name not in known}
    missing = {} if spawn.configured else missing
    if missing and not (may_ask and child.may_ask and not spawn.inline):
        names = ", ".join(f"{name} ({description})" for name, description in missing.items())
        raise ChildRefused(
            f"'{child.name}' needs variables that nobody can be asked for: {names}. Nothing was started."
        )
    return Supervision(
        rules=[rules for rules in by.rules if rules],
        may_ask=child.may_ask and may_ask,
        variables=values,
        missing=missing,
    )
