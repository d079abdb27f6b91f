"""Plans children: agent, model, tools and limits of each, or the reason why it may not start."""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from activities.delegation.messages import Subagents
from activities.model.anthropic import ModelCheck
from activities.tools.builtin import read_file
from activities.tools.offered import can_be_subagent, description_of, find_enabled, subagent_tools
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
from domain.agents.variables import Graph, NeededVariable, drop_shared, find_needed, inherit_values, resolve_values
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
from domain.policy.rules import Action, Rule, RuleVerdict, path_parts, verdict
from domain.sessions.new_session import NewSession, Supervision
from domain.sessions.session import AgentRef, DeliveryMode, Limits, SessionRef
from store import agents, budgets, conversations, sessions, threads, variables, workspaces
from store import agents as agent_versions
from store.agents import Definitions
from store.database import Pool
from store.threads import Child


class ChildRefused(Exception):
    """A child may not be started; the text is for the model."""

    def __init__(self, text: str, rule: Rule | None = None) -> None:
        super().__init__(text)
        self.rule = rule  # the rule that forbids it


@dataclass(frozen=True)
class Planned:
    agent: AgentRef
    models: list[str]
    name: str
    description: str
    thread: str | None
    delivery: DeliveryMode
    session: NewSession | None  # None: an inline delegate has no separate session
    field: str | None = "prompt"  # the argument with its first message
    within: str | None = None  # the argument that holds the others
    instance: Child | None = None  # the existing one that the message is for
    attachments: list[Attachment] = dataclasses.field(default_factory=list)  # files sent with its message
    needs: list[NeededVariable] = dataclasses.field(default_factory=list)  # missing in its whole graph

    hooked: bool = False  # its agent has hooks

    @property
    def terms(self) -> SubagentTerms | None:
        return self.session.subagent if self.session else None


class ChildPlanner:
    def __init__(
        self,
        pool: Pool,
        tools: dict[str, Tool],
        definitions: Definitions,
        models: ModelCheck,
        subagents: Subagents,
        default_depth: int,
    ) -> None:
        self._pool = pool
        self._tools = tools
        self._definitions = definitions
        self._models = models
        self._subagents = subagents
        self._default_depth = default_depth

    async def parent(self, ref: SessionRef) -> sessions.SessionRow:
        session = await sessions.get(self._pool, ref.tenant, ref.session_id)
        assert session is not None
        return session

    async def max_depth(self, call: DelegationCall) -> int:
        """The smallest limit on the path: each agent may limit the levels below it, and the root's limit applies to
        all."""
        path = await threads.find_path_above(self._pool, call.ref.tenant, call.ref.session_id)
        root = (await self._definitions.load(path[-1][1])).max_depth or self._default_depth
        path += [(path[0][0], agent) for agent in (*call.above[1:], call.agent)]  # inline lines do not add a level
        limited = [(depth, (await self._definitions.load(agent)).max_depth) for depth, agent in path]
        return min([root, *(depth + below for depth, below in limited if below)])

    async def plan(self, call: DelegationCall, kind: DelegationTool, arguments: Any) -> Planned:
        parent = await self.parent(call.ref)
        agents = [await self._definitions.load(agent) for agent in (*call.above, call.agent)]
        definition = agents[-1]
        name, wanted = _name_child(kind, arguments, definition)
        layers = [*(agent.permissions for agent in agents), *parent.rules]
        agent, child = await self._target(
            call, definition, wanted, lambda name: verdict(layers, self._tools[kind], [name])
        )
        sides, models = await self.chosen_models(call, child)
        if sides is not None and not sides.inline and kind is DelegationTool.DELEGATE:
            raise ChildRefused(f"'{child.name}' has sides and needs a separate session: use task instead.")
        if kind is not DelegationTool.DELEGATE:
            await self.check_budget(call)
        thread = await self._continued(call, parent.thread_id, kind, arguments, wanted)
        reference = definition.subagent(wanted)
        conversation = await conversations.get(self._pool, call.ref.tenant, call.ref.conversation_id)
        delivery = (
            (reference.delivery if reference else None)
            or (conversation.delivery if conversation else None)
            or DeliveryMode.HOLD
        )
        delivery = DeliveryMode.REPORT if kind is DelegationTool.START_BACKGROUND else delivery
        description = getattr(arguments, "description", "")
        tools = subagent_tools(self._tools, child)
        values, _ = await self.values(call, parent, agents, child)
        supervised, limits = (
            plan_supervision(parent, child, values, reference, kind, layers),
            reduce_limits(parent, child),
        )
        session = None
        if kind is not DelegationTool.DELEGATE:
            session = NewSession.for_child(
                parent,
                agent,
                supervised,
                tool=kind,
                name=name,
                label=description or name,
                models=models,
                sides=sides,
                tools=tools,
                limits=limits,
            )
        return Planned(
            agent=agent,
            models=models,
            name=name,
            description=description,
            thread=thread,
            delivery=delivery,
            session=session,
            hooked=bool(child.for_side("a").hooks),
        )

    async def values(
        self,
        call: DelegationCall,
        parent: sessions.SessionRow,
        above: list[AgentDefinition],
        child: AgentDefinition,
        tool: SubagentTool | None = None,
    ) -> tuple[dict[str, str], Graph]:
        """The child's variables as its thread inherits them, and the graph in which they were looked up."""
        graph = await agents.find_reachable(self._pool, call.ref.tenant, child)
        return inherit_values(parent.variables, above, child, graph, tool), graph

    async def chosen_models(self, call: DelegationCall, child: AgentDefinition) -> tuple[Sides | None, list[str]]:
        sides = session_sides(child, lambda view: [view.model or call.model, *view.fallback_models])
        models = sides.models[sides.first] if sides else [child.model or call.model, *child.fallback_models]
        for first in {models[0]: None} | {own[0]: None for own in (sides.models if sides else {}).values()}:
            if problem := await self._models.problem(first):
                raise ChildRefused(f"The launch failed: {problem} Nothing was started.")
        return sides, models

    async def check_budget(self, call: DelegationCall) -> None:
        tree = await budgets.get(self._pool, call.ref.tenant, call.ref.conversation_id)
        if tree is not None and (lacking := tree.spent(datetime.now(UTC))):
            raise ChildRefused(f"The budget of {lacking} shared with all subagents is spent; nothing was started.")

    async def _target(
        self, call: DelegationCall, definition: AgentDefinition, wanted: str, judge: Callable[[str], RuleVerdict]
    ) -> tuple[AgentRef, AgentDefinition]:
        """A permitted subagent by name. For any other name the refusal lists the permitted ones."""
        found: dict[str, tuple[AgentRef, AgentDefinition]] = {}
        for reference in definition.subagents:
            known = await agents.get_current(self._pool, call.ref.tenant, reference.agent)
            allowed = judge(reference.agent).action is not Action.DENY
            if known is not None and known[1].mode is not Mode.PRIMARY and allowed:
                found[reference.agent] = known
        if wanted not in found:
            text, judged = unknown_subagent(wanted, sorted(found)), judge(wanted)
            if definition.subagent(wanted) is None or judged.action is not Action.DENY:
                raise ChildRefused(text)
            raise ChildRefused(f"{text} A rule forbids it: {judged.because}.", judged.rule)
        return found[wanted]

    async def _continued(
        self, call: DelegationCall, parent_thread: str, kind: DelegationTool, arguments: Any, wanted: str
    ) -> str | None:
        """The thread to continue, which keeps its agent. If only a name is given, the conversation finds the thread."""
        if kind is DelegationTool.ASYNC_DELEGATE:
            named = await threads.find_child_by_name(self._pool, call.ref.tenant, parent_thread, arguments.name)
            if named is not None and named.agent != wanted:
                raise ChildRefused(another_agent(named.session_id, named.agent, "use another name for a new one"))
        field = {DelegationTool.TASK: "task_id", DelegationTool.START_BACKGROUND: "agent_id"}.get(kind)
        known = getattr(arguments, field) if field else None
        if known is None:
            return None
        child = await self._subagents.child(call.ref, known)
        if child is None:
            raise ChildRefused(not_found(known))
        if child.agent != wanted:
            raise ChildRefused(another_agent(child.session_id, child.agent, f"leave {field} out for a new one"))
        return child.thread_id


def _name_child(kind: DelegationTool, arguments: Any, definition: AgentDefinition) -> tuple[str, str]:
    """The name and the agent of the child."""
    if kind is DelegationTool.ASYNC_DELEGATE:
        return arguments.name, arguments.agent or arguments.name
    if kind is DelegationTool.START_BACKGROUND:
        only = definition.subagents[0].agent if len(definition.subagents) == 1 else ""
        return arguments.name, arguments.agent or only
    return arguments.agent, arguments.agent


def reduce_limits(parent: sessions.SessionRow, child: AgentDefinition) -> Limits:
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


def plan_supervision(
    parent: sessions.SessionRow,
    child: AgentDefinition,
    values: dict[str, str],
    reference: SubagentRef | None,
    kind: DelegationTool,
    layers: list[list[Rule]],
    *,
    complete: bool = False,
) -> Supervision:
    """The parent's rules bind the child too. It may ask people and wait for outside answers only if the parent's
    definition says so; an inline child never waits. `complete`: its variables were asked for before."""
    may_ask = reference is not None and reference.may_ask
    waits = may_ask and kind is not DelegationTool.DELEGATE
    known = resolve_values(child, values)
    missing = {name: one.description for name, one in child.all_variables.items() if one.required and name not in known}
    missing = {} if complete else missing
    if missing and not (waits and child.may_ask):
        names = ", ".join(f"{name} ({description})" for name, description in missing.items())
        raise ChildRefused(
            f"'{child.name}' needs variables that nobody can be asked for: {names}. Nothing was started."
        )
    return Supervision(
        rules=[rules for rules in layers if rules],
        may_ask=child.may_ask and may_ask,
        external_tools=child.external_tools if waits else [],
        variables=values,
        missing=missing,
    )


# A child for a subagent tool of a prompt, or a message to a child that exists.


class SubagentPlanner:
    def __init__(
        self,
        pool: Pool,
        tools: dict[str, Tool],
        definitions: Definitions,
        planner: ChildPlanner,
        subagents: Subagents,
    ) -> None:
        self._pool = pool
        self._tools = tools
        self._definitions = definitions
        self._children = planner
        self._subagents = subagents

    async def plan(
        self, call: DelegationCall, kind: DelegationTool, tool: str, arguments: Any, pending: Sequence[Planned]
    ) -> Planned:
        """`tool`: its name, which may be an agent's name; `pending`: the other children that the same response
        starts."""
        try:
            return await self._plan(call, kind, tool, arguments, pending)
        except AttachmentRefused as error:
            raise ChildRefused(str(error)) from None

    async def _plan(
        self, call: DelegationCall, kind: DelegationTool, tool: str, arguments: Any, pending: Sequence[Planned]
    ) -> Planned:
        parent = await self._children.parent(call.ref)
        agents = [await self._definitions.load(agent) for agent in (*call.above, call.agent)]
        instance = None
        wanted = tool
        if kind is DelegationTool.SUBAGENT_MESSAGE:
            instance = await self._addressed(call, arguments.target)
            wanted = instance.agent
        elif kind is DelegationTool.SUBAGENT_CREATE:
            wanted = arguments.agent
        config, ref, child = await self._configured(call, parent, agents, kind, wanted)
        given: JsonObject = arguments.model_dump(exclude_none=True)
        if kind is DelegationTool.SUBAGENT_CREATE:
            await self._check_instances(call, config, arguments.name, pending)
            given = arguments.arguments or {config.init_user_message_property or "message": arguments.message}
        if kind is not DelegationTool.SUBAGENT_MESSAGE:
            schema = child.input_schema or DEFAULT_SCHEMA
            if found := await run_check(errors, schema, given, most=5):
                lines = [f"{'.'.join(map(str, one.absolute_path)) or 'arguments'}: {one.message}" for one in found]
                raise ChildRefused("The arguments do not fit; nothing was started.\n" + "\n".join(lines))
        own_name = getattr(arguments, "name", None) or self._name(config, given)
        name = instance.name if instance else own_name or wanted
        sides, models = await self._children.chosen_models(call, child)
        await self._children.check_budget(call)
        terms = SubagentTerms.of(config, description_of(child), call.node)
        layers = [*(agent.permissions for agent in agents), *parent.rules]
        before = await sessions.get(self._pool, call.ref.tenant, instance.session_id) if instance else None
        values, graph = await self._children.values(call, parent, agents, child, config)
        own = await variables.values_of_thread(self._pool, call.ref.tenant, instance.thread_id) if instance else {}
        values = {**drop_shared(before.variables if before else {}), **values, **own}
        own_space = before.workspace_id if before else _choose_workspace(parent, config, None)
        files = await self._attachments(call, parent, layers, config, kind, arguments, given, own_space)
        session = NewSession.for_child(
            parent,
            ref,
            plan_supervision(parent, child, values, None, kind, layers, complete=True),
            tool=kind,
            name=name,
            label=name,
            models=models,
            sides=sides,
            tools=subagent_tools(self._tools, child),
            limits=reduce_limits(parent, child),
            terms=terms,
            arguments=rewrite_paths(given, files),
            tags=[f"name:{own_name}"] if own_name and instance is None else (),
            workspace_id=own_space,
        )
        nested = kind is DelegationTool.SUBAGENT_CREATE and arguments.arguments is not None
        mapped = config.init_user_message_property if nested or kind is DelegationTool.SUBAGENT else "message"
        return Planned(
            agent=ref,
            models=models,
            name=name,
            description=terms.description,
            thread=instance.thread_id if instance else None,
            delivery=DeliveryMode.EXPLICIT if terms.explicit else DeliveryMode.WAKE,
            session=session,
            field=mapped,
            within="arguments" if nested else None,
            instance=instance,
            attachments=files,
            needs=await asyncio.to_thread(find_needed, child, values, graph),  # takes long for a large graph
        )

    async def _attachments(
        self,
        call: DelegationCall,
        parent: sessions.SessionRow,
        layers: list[list[Rule]],
        config: SubagentTool,
        kind: DelegationTool,
        arguments: Any,
        given: dict[str, Any],
        workspace_id: str | None,
    ) -> list[Attachment]:
        """The files that the call attaches, with their paths at the child. A file that its parent may not read is
        refused."""
        named = given.get(config.init_attachments_property or "attachments")
        if kind is not DelegationTool.SUBAGENT:
            named = [*arguments.attachments, *(paths_of(named) if kind is DelegationTool.SUBAGENT_CREATE else [])]
        paths = paths_of(named)
        if not paths:
            return []
        _, manifest = await workspaces.get(self._pool, call.ref.tenant, parent.workspace_id)
        tag = None if workspace_id == parent.workspace_id else derive_id(call.node, *call.indexes, *paths)[-8:]
        found = attach_files(paths, manifest, tag)
        for one in found:
            judged = verdict(layers, self._tools[read_file.TOOL.name], ["/".join(path_parts(one.given))])
            if judged.action is not Action.ALLOW:
                raise ChildRefused(
                    f"A rule keeps {one.given!r} from you: {judged.because}. Nothing was sent.", judged.rule
                )
        return found

    @staticmethod
    def _name(config: SubagentTool, given: JsonObject) -> str | None:
        value = given.get(config.init_agent_name_property or "name")
        return value.strip()[:63] if isinstance(value, str) and value.strip() else None

    async def _addressed(self, call: DelegationCall, target: str) -> Child:
        found = await self._subagents.instance(call.ref, target)
        if found is None or found.terms is None:
            raise ChildRefused(f"There is no subagent {target!r}. Nothing was sent.")
        if not found.terms.resumable:
            raise ChildRefused(no_address(found.name))
        if await threads.is_terminated(self._pool, call.ref.tenant, found.thread_id):
            raise ChildRefused(was_terminated(found.name, found.thread_id))
        return found

    async def _configured(
        self,
        call: DelegationCall,
        parent: sessions.SessionRow,
        agents: list[AgentDefinition],
        kind: DelegationTool,
        wanted: str,
    ) -> tuple[SubagentTool, AgentRef, AgentDefinition]:
        """The subagent with the prompt's settings and its current definition; disabled and hidden ones are not
        found."""
        resumable = kind is not DelegationTool.SUBAGENT
        there = {
            one.name: one
            for one in find_enabled(agents[-1], parent.variables)
            if (not one.hidden or (call.immediate and one.immediate)) and (one.resumable is not None) == resumable
        }
        found = await agent_versions.get_current(self._pool, call.ref.tenant, wanted) if wanted in there else None
        if found is None or not can_be_subagent(found[1]):
            raise ChildRefused(unknown_subagent(wanted, sorted(there)))
        layers = [*(agent.permissions for agent in agents), *parent.rules]
        judged = verdict(layers, self._tools[DelegationTool.SUBAGENT_CREATE], [wanted])
        if judged.action is Action.DENY:
            raise ChildRefused(f"A rule forbids the subagent '{wanted}': {judged.because}.", judged.rule)
        return there[wanted], *found

    async def _check_instances(
        self, call: DelegationCall, config: SubagentTool, name: str, pending: Sequence[Planned]
    ) -> None:
        """Refuse an instance beyond the most that there may be, or with a name that is taken."""
        assert config.resumable is not None
        parent = await self._children.parent(call.ref)
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
        names += [one.name for one in pending if one.agent.name == config.name and one.thread is None]
        if most is not None and len(names) >= most:
            raise ChildRefused(too_many_instances(config.name, most, names))
        taken = next((one for one in alive if one.thread_name == name), None)
        if taken is not None and taken.status == TERMINATED:
            raise ChildRefused(f"{was_terminated(name, taken.reference)} Use another name. Nothing was started.")
        if taken is not None:
            raise ChildRefused(name_taken(name, taken.reference))


def _choose_workspace(
    parent: sessions.SessionRow, config: SubagentTool, before: sessions.SessionRow | None
) -> str | None:
    """The workspace of an instance: an existing one keeps its own; None: a new one."""
    if before is not None:
        return before.workspace_id
    return parent.workspace_id if config.environment is WorkspaceSharing.INHERIT else None
