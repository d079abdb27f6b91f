"""Plan a child for a subagent tool of a prompt, or a message to a child that exists."""

import asyncio
from collections.abc import Sequence
from typing import Any

from activities.definitions import Definitions
from activities.delegation.child_plan import ChildPlanner, ChildRefused, Planned, limits_of, supervision
from activities.delegation.subagent_tools import can_be_subagent, description_of, enabled
from activities.delegation.subagents import Subagents
from activities.tools.builtin import read_file
from activities.tools.offered import subagent_tools
from activities.tools.tool import Tool
from domain.agents.definition import AgentDefinition
from domain.agents.subagent_tool import SubagentTool, WorkspaceSharing
from domain.agents.variable_scope import needed, without_shared
from domain.conversations.attachments import Attachment, AttachmentRefused, attached, paths_of, rewritten
from domain.conversations.delegation import DelegationCall, DelegationTool
from domain.conversations.subagent import DEFAULT_SCHEMA, TERMINATED, SubagentTerms
from domain.conversations.subagent_texts import (
    name_taken,
    no_address,
    too_many_instances,
    unknown_subagent,
    was_terminated,
)
from domain.ids import derive_id
from domain.json_object import JsonObject
from domain.json_schema import errors, run_check
from domain.policy.rules import Action, Rule, verdict
from domain.policy.subjects import parts
from domain.sessions.new_session import NewSession
from domain.sessions.session import AgentRef, DeliveryMode
from store import agents as agent_versions
from store import children, sessions, thread_variables, threads, variable_requests, workspaces
from store.children import Child
from store.database import Pool


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
        own = await thread_variables.own(self._pool, call.ref.tenant, instance.thread_id) if instance else {}
        values = {**without_shared(before.variables if before else {}), **values, **own}
        own_space = before.workspace_id if before else _workspace(parent, config, None)
        files = await self._attachments(call, parent, layers, config, kind, arguments, given, own_space)
        session = NewSession.for_child(
            parent,
            ref,
            supervision(parent, child, values, None, kind, layers, complete=True),
            tool=kind,
            name=name,
            label=name,
            models=models,
            sides=sides,
            tools=subagent_tools(self._tools, child),
            limits=limits_of(parent, child),
            terms=terms,
            arguments=rewritten(given, files),
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
            needs=await asyncio.to_thread(needed, child, values, graph),  # takes long for a large graph
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
        found = attached(paths, manifest, tag)
        for one in found:
            judged = verdict(layers, self._tools[read_file.TOOL.name], ["/".join(parts(one.given))])
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
            for one in enabled(agents[-1], parent.variables)
            if (not one.hidden or (call.immediate and one.immediate)) and (one.resumable is not None) == resumable
        }
        found = await agent_versions.current(self._pool, call.ref.tenant, wanted) if wanted in there else None
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
        listed = await children.registry(self._pool, call.ref.tenant, call.ref.conversation_id, parent.thread_id)
        alive = [one for one in listed if one.resumable and one.reference not in own]
        most = config.resumable.max_instances
        same = [one for one in alive if one.agent == config.name and one.status != TERMINATED]
        names = [one.name for one in same]
        waiting = await variable_requests.waiting_names(self._pool, call.ref.tenant, parent.thread_id, config.name)
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


def _workspace(parent: sessions.SessionRow, config: SubagentTool, before: sessions.SessionRow | None) -> str | None:
    """The workspace of an instance: an existing one keeps its own; None: a new one."""
    if before is not None:
        return before.workspace_id
    return parent.workspace_id if config.environment is WorkspaceSharing.INHERIT else None
