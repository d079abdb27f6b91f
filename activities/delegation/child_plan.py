"""Plan a child: its agent, model, tools and limits, or the reason why it may not start."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from activities.definitions import Definitions
from activities.delegation.subagents import Subagents
from activities.model.anthropic import ModelCheck
from activities.tools.offered import subagent_tools
from activities.tools.tool import Tool
from domain.agents.definition import AgentDefinition, Mode, SubagentRef
from domain.agents.sides import Sides, session_sides
from domain.agents.subagent_tool import SubagentTool
from domain.agents.variable_scope import Graph, NeededVariable, inherited, resolved
from domain.conversations.attachments import Attachment
from domain.conversations.delegation import DelegationCall, DelegationTool
from domain.conversations.subagent import SubagentTerms
from domain.conversations.subagent_texts import (
    another_agent,
    not_found,
    unknown_subagent,
)
from domain.policy.rules import Action, Rule, RuleVerdict, verdict
from domain.sessions.new_session import NewSession, Supervision
from domain.sessions.session import AgentRef, DeliveryMode, Limits, SessionRef
from store import agent_graph, agents, budgets, children, conversations, sessions
from store.children import Child
from store.database import Pool


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
        path = await children.path_above(self._pool, call.ref.tenant, call.ref.session_id)
        root = (await self._definitions.load(path[-1][1])).max_depth or self._default_depth
        path += [(path[0][0], agent) for agent in (*call.above[1:], call.agent)]  # inline lines do not add a level
        limited = [(depth, (await self._definitions.load(agent)).max_depth) for depth, agent in path]
        return min([root, *(depth + below for depth, below in limited if below)])

    async def plan(self, call: DelegationCall, kind: DelegationTool, arguments: Any) -> Planned:
        parent = await self.parent(call.ref)
        agents = [await self._definitions.load(agent) for agent in (*call.above, call.agent)]
        definition = agents[-1]
        name, wanted = _named(kind, arguments, definition)
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
        supervised, limits = supervision(parent, child, values, reference, kind, layers), limits_of(parent, child)
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
        graph = await agent_graph.reachable(self._pool, call.ref.tenant, child)
        return inherited(parent.variables, above, child, graph, tool), graph

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
            known = await agents.current(self._pool, call.ref.tenant, reference.agent)
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
            named = await children.by_name(self._pool, call.ref.tenant, parent_thread, arguments.name)
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


def _named(kind: DelegationTool, arguments: Any, definition: AgentDefinition) -> tuple[str, str]:
    """The name and the agent of the child."""
    if kind is DelegationTool.ASYNC_DELEGATE:
        return arguments.name, arguments.agent or arguments.name
    if kind is DelegationTool.START_BACKGROUND:
        only = definition.subagents[0].agent if len(definition.subagents) == 1 else ""
        return arguments.name, arguments.agent or only
    return arguments.agent, arguments.agent


def limits_of(parent: sessions.SessionRow, child: AgentDefinition) -> Limits:
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


def supervision(
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
    known = resolved(child, values)
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
