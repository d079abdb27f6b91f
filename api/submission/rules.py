"""The rules for a submitted task, one function each; `submit.check_task` has their order. A refusal names what is
allowed.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from jsonschema.exceptions import ValidationError, best_match

from agents.problems import mcp_problems
from api.http.auth import Call
from api.http.body import join_pointer
from api.http.lookup import check_file, check_owner
from api.http.problems import Finding, finding, refuse
from domain.agents.definition import (
    MOST_MCP_SERVERS,
    PLANNING,
    AgentDefinition,
    ExternalTool,
    McpServer,
    Mode,
    Variable,
    list_reserved_names,
    own_tools,
    tool_problems,
)
from domain.agents.mcp_discovery import DiscoverTools, lists_problem, unread, with_lists
from domain.agents.models import PriceTable
from domain.agents.variables import (
    Graph,
    drop_shared,
    find_missing,
    graph_variables,
    seal_all,
    seal_secrets,
)
from domain.credentials import TENANT, CredentialRules, OwnedRules, name_task, name_user
from domain.environments import EnvironmentSpec
from domain.errors import Invalid
from domain.json_object import JsonObject
from domain.json_schema import COMPLEXITY, MAX_ERRORS, errors, run_check, schema_problems
from domain.notifications import ChannelName, SubscriptionStatus
from domain.policy.rules import Action, host_of, names_a_tool
from domain.sessions.input_request import OnExpiry
from domain.sessions.new_session import Supervision
from domain.sessions.session import Effect, Limits, SandboxMode
from domain.sessions.writes import NewBudget
from domain.task import TaskConfig, TaskSpec, TreeConfig
from settings import Settings
from store import agents, credentials, environments, files, notifications, sessions, workers
from store.agents import TaskAgent
from store.database import Pool
from store.keys import Right
from store.sessions import SessionRow


async def find_agent(call: Call, name: str) -> TaskAgent:
    """The current agent of this name, if a caller may start it."""
    found = await agents.get_for_task(call.pool, call.tenant, name)
    if found is not None and found.definition.mode is not Mode.SUBAGENT:
        return found
    current = await agents.list_current(call.pool, call.tenant)
    startable = [ref.name for ref, one in current if one.mode is not Mode.SUBAGENT]
    if found is not None:
        raise refuse("/agent", "subagent_only", "only other agents can start this one", startable, type="invalid-spec")
    raise refuse("/agent", "unknown_agent", "there is no such agent", startable, type="unknown-agent")


async def check_input(definition: AgentDefinition, value: object) -> None:
    """Check the input against the agent's schema; findings quote the schema, never the input."""
    schema = definition.input_schema
    if schema is None:
        return
    if found := await run_check(_misfits, schema, value):
        raise Invalid("The input does not fit the agent's input schema.", errors=found)


async def check_answer(schema: JsonObject, value: object) -> None:
    if found := await run_check(_misfits, schema, value):
        raise Invalid("The answer does not fit the request's answer schema.", errors=found)


def _misfits(schema: JsonObject, value: object) -> list[Finding]:
    # among alternatives, the error of the nearest one
    decisive = [best_match([error]) or error for error in errors(schema, value)]
    found = {(entry.pointer, entry.code): entry for error in decisive for entry in _of_schema(error)}
    return list(found.values())[:MAX_ERRORS]


def _of_schema(error: ValidationError) -> list[Finding]:
    pointer = "/input"
    for part in error.absolute_path:
        pointer = join_pointer(pointer, str(part))
    keyword = str(error.validator)
    rule: Any = error.validator_value
    given: Any = error.instance
    if keyword == COMPLEXITY:
        return [finding(pointer, keyword, "the input cannot be checked against the schema, or only with too much work")]
    if keyword == "required":
        return [
            finding(join_pointer(pointer, name), keyword, "this field is required")
            for name in rule
            if name not in given
        ]
    if keyword == "additionalProperties":
        known = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
        strange = [name for name in given if name not in known]
        return [
            finding(join_pointer(pointer, name), "unknown_field", "there is no such field", sorted(known))
            for name in strange
        ]
    if keyword in ("enum", "type", "const"):
        return [finding(pointer, keyword, f"the {keyword} does not fit", rule if isinstance(rule, list) else [rule])]
    bound = f" {rule}" if isinstance(rule, int | float | str) else ""
    return [finding(pointer, keyword, f"must satisfy {keyword}{bound}"[:300])]


def choose_models(spec: TaskSpec, definition: AgentDefinition, settings: Settings) -> list[str]:
    """The task's model, else the agent's, else the default; then the fallbacks."""
    first = spec.config.model or definition.model or settings.default_model
    return list(dict.fromkeys([first, *definition.fallback_models]))


async def check_models(pool: Pool, models: list[str], settings: Settings) -> None:
    """Refuse a model of a provider that neither this process nor a worker knows, and one that its provider lacks, if a
    worker has a complete list."""
    providers = settings.model_providers
    default = providers.named.get(providers.default)
    if not (any("/" in model for model in models) or (default is not None and default.lists_all)):
        return  # names of the default provider, which says nothing about them
    reported = {one.provider: one for one in await workers.models(pool)}
    known = reported.keys() or providers.named.keys()
    for model in models:
        first, slash, rest = model.partition("/")
        provider, own = (first, rest) if slash else (providers.default, model)
        if slash and provider not in known:
            raise refuse(
                "/config/model", "unknown_provider", "there is none such", sorted(known), type="unknown-provider"
            )
        # a bare fallback may be meant for platforms with another default: without it the task can run, too
        names = reported[provider].models if provider in reported and (slash or model == models[0]) else None
        if names is not None and not {own, f"{own}:latest"} & {*names}:
            listed = [f"{provider}/{name}" for name in names]
            raise refuse("/config/model", "unknown_model", "the provider has none such", listed, type="unknown-model")


def choose_limits(spec: TaskSpec, definition: AgentDefinition, settings: Settings) -> Limits:
    """The task's limits, else the agent's, else the defaults; never beyond the platform's ceilings."""
    wanted, own, default = spec.config, definition.limits, Limits()
    over = [
        finding(f"/config/{name}", "out_of_range", "beyond what this platform allows", [f"{low}..{ceiling}"])
        for name, value, low, ceiling in (
            ("ttl", wanted.ttl, 1_000, settings.max_ttl_ms),
            ("max_steps", wanted.max_steps, 1, settings.max_steps),
            ("max_tokens", wanted.max_tokens, 1, settings.max_tokens),
            ("max_cost_usd", wanted.max_cost_usd, 0, settings.max_cost_usd),
        )
        if value is not None and value > ceiling
    ]
    if over:
        raise Invalid("A limit is out of range.", errors=over)
    check_tree(wanted)
    ttl_ms = min(wanted.ttl or own.ttl_ms or default.ttl_ms, settings.max_ttl_ms)
    check_waiting(spec, min(ttl_ms, (wanted.tree and wanted.tree.ttl) or ttl_ms))
    cost = wanted.max_cost_usd if wanted.max_cost_usd is not None else own.cost_usd
    return Limits(
        ttl_ms=ttl_ms,
        steps=min(wanted.max_steps or own.steps or default.steps, settings.max_steps),
        tokens=min(wanted.max_tokens or own.tokens or settings.max_tokens, settings.max_tokens),
        cost_usd=min(cost, settings.max_cost_usd) if cost is not None else None,
        tool_calls=wanted.max_tool_calls or own.tool_calls,
        repeats_warning=settings.loop_warning,
        repeats=settings.loop_limit,
        denied=settings.denied_limit or None,
    )


def check_waiting(spec: TaskSpec, ttl_ms: int) -> None:
    """Check that questions expire before the task does; an action on timeout needs a timeout."""
    wanted, then = spec.config.input_timeout, spec.config.on_input_timeout
    if wanted is not None and wanted > ttl_ms:
        raise refuse("/config/input_timeout", "out_of_range", "longer than the task lives", [f"1000..{ttl_ms}"])
    if then in (OnExpiry.DENY, OnExpiry.DEFAULT) and wanted is None:
        raise refuse("/config/on_input_timeout", "needs", "this needs an input_timeout", ["cancel"])


def check_tree(config: TaskConfig) -> None:
    """Refuse a part that would get more than the whole."""
    whole = config.tree or TreeConfig()
    over = [
        finding(f"/config/{name}", "out_of_range", f"more than /config/tree/{name} allows", [f"..{most}"])
        for name in ("ttl", "max_steps", "max_tokens", "max_cost_usd", "max_tool_calls")
        if (most := getattr(whole, name)) is not None and (getattr(config, name) or 0) > most
    ]
    if over:
        raise Invalid("A task cannot have more than it shares with its subagents.", errors=over)


def build_budget(config: TaskConfig, limits: Limits, now: datetime) -> NewBudget | None:
    """The budget of the whole conversation, if the task has one. Attempts share the limits of their task."""
    if config.tree is None and config.attempts is None:
        return None
    wanted = config.tree or TreeConfig()
    if config.attempts is not None:
        shared = {"max_tokens": limits.tokens, "max_cost_usd": limits.cost_usd}
        given = wanted.model_dump(include={*shared}, exclude_none=True)
        lower = {name: min(most, given.get(name, most)) for name, most in shared.items() if most is not None}
        wanted = wanted.model_copy(update=lower)
    ends = now + timedelta(milliseconds=wanted.ttl) if wanted.ttl else None
    most = wanted.model_dump(exclude={"ttl"}, exclude_none=True)
    return NewBudget.model_validate({**most, "deadline": ends})


def check_plan(spec: TaskSpec, definition: AgentDefinition) -> None:
    """Check that the agent of a task with plan approval can submit a plan."""
    if spec.config.approval_required and not any(PLANNING & {*view.tools} for view in definition.views):
        why = f"this agent has no {' or '.join(sorted(PLANNING))}"
        raise refuse("/config/approval_required", "unavailable", why, [False])


async def check_output_schema(spec: TaskSpec, definition: AgentDefinition) -> None:
    """Check a form of the answer: it needs a usable schema, and an agent with a single final answer."""
    schema, pointer = spec.config.output_schema, "/config/output_schema"
    if schema is None:
        return
    if definition.dual:
        raise refuse(pointer, "unavailable", "an agent with two sides has no single answer", [])
    if found := await run_check(schema_problems, "config.output_schema", schema):
        problems = [finding("/" + one.field.replace(".", "/"), "invalid", one.message, one.allowed) for one in found]
        raise Invalid("The output schema cannot be used.", errors=problems[:50])


async def check_tool_names(pool: Pool, tenant: str, spec: TaskSpec, definition: AgentDefinition) -> None:
    """Check that permissions and boundaries name existing tools: a misspelt name would silently restrict nothing."""
    named = [(f"/permissions/{place}/permission", rule.permission) for place, rule in enumerate(spec.permissions)]
    if spec.boundary and spec.boundary.tools:
        named += [(f"/boundary/tools/{place}", name) for place, name in enumerate(spec.boundary.tools)]
    tools = await workers.tools(pool) if named else set()
    if not tools:  # no worker is running, so no names are known, and the task is accepted
        return
    tools |= {tool.name for tool in spec.config.external_tools}
    for agent in (await agents.find_reachable(pool, tenant, definition)).values():  # rules bind subagents too
        tools |= own_tools(agent, may_ask=agent.may_ask, plans=False)
    found = [
        finding(pointer, "unknown_tool", "no tool has this name", sorted(tools))
        for pointer, name in named
        if not names_a_tool(name, tools)
    ]
    if found:
        raise Invalid("A rule names a tool that does not exist.", type="invalid-spec", errors=found[:20])


def check_prices(limits: Limits, tree: TreeConfig | None, models: list[str], prices: PriceTable) -> None:
    """Check that every model that may be called has a price, without which a cost budget cannot work."""
    shared = tree is not None and tree.max_cost_usd is not None
    if (limits.cost_usd is not None or shared) and find_unpriced(models, prices):
        detail = "A cost budget needs a price for the model and for each of its fallbacks."
        pointer = "/config/max_cost_usd" if limits.cost_usd is not None else "/config/tree/max_cost_usd"
        raise refuse(pointer, "unpriced_model", detail, prices.list_priced(), type="unpriced-model")


def with_default_cost(
    limits: Limits, tokens: int | None, models: list[str], prices: PriceTable, settings: Settings
) -> Limits:
    """Give a task without a cost limit the platform's, if its models cost money. The cost of a model without a price
    cannot be measured, so a limit would end such a task at once: it gets one of tokens, unless the task or its agent
    has one (`tokens`)."""
    if find_unpriced(models, prices) and tokens is None:
        return limits.model_copy(update={"tokens": min(limits.tokens or settings.max_tokens, settings.unpriced_tokens)})
    if limits.cost_usd is not None or not settings.default_cost_usd:
        return limits
    if find_unpriced(models, prices) or all(map(prices.is_free, models)):
        return limits
    return limits.model_copy(update={"cost_usd": min(settings.default_cost_usd, settings.max_cost_usd)})


def find_unpriced(models: list[str], prices: PriceTable) -> list[str]:
    return [model for model in models if prices.price(model) is None]


async def check_sandbox(pool: Pool, spec: TaskSpec, definition: AgentDefinition, settings: Settings) -> None:
    """Refuse a task that asks for a network which its agent does not have; a task can only take one away."""
    if spec.config.sandbox is None:
        return
    if spec.config.sandbox is SandboxMode.NETWORKED and not (definition.network and settings.sandbox_network == "on"):
        why = "no command has one here (ERRAND_SANDBOX_NETWORK)"
        why = why if definition.network else f"the agent {definition.name} has no network"
        raise refuse("/config/sandbox", "not_allowed", why, [SandboxMode.ISOLATED], type="not-available")
    seen = await workers.fresh(pool)
    if any(sandbox != "none" for sandbox, _ in seen.values()):
        return
    why = "no worker on this platform has a sandbox" if seen else "no worker is running, so no sandbox is known"
    problem = finding("/config/sandbox", "unavailable", why, [])
    modes = ", ".join(SandboxMode)
    raise Invalid(f"The sandbox ({modes}) is not available: {why}.", type="not-available", errors=[problem])


async def check_repository(call: Call, config: TaskConfig) -> None:
    """Refuse a repository that is not there, and an environment whose credentials the task would not find; whether a
    repository can be reached shows when the task begins, on a worker."""
    given = [name for name in ("environment", "repository", "repositories") if getattr(config, name)]
    if len(given) > 1:
        raise refuse(f"/config/{given[1]}", "conflict", f"the repositories of a task come from its {given[0]}", [])
    folders = ["", *config.repositories] if config.repository else list(config.repositories)
    environment = None
    if config.environment is not None:
        environment = await environments.get(call.pool, call.tenant, config.environment)
        if environment is None:
            known = list(await environments.list_all(call.pool, call.tenant))
            raise refuse("/config/environment", "not_found", "there is no such environment", known[:50])
        folders = list(environment.sources)
    check_refs(config, folders)
    await _check_credentials(call, config, environment)
    sent = {"/config/repository": config.repository} if config.repository is not None else {}
    sent |= {f"/config/repositories/{folder}": one for folder, one in config.repositories.items()}
    for pointer, file_id in sent.items():
        file = await files.get(call.pool, call.tenant, file_id)
        if file is None:
            raise refuse(pointer, "not_found", "there is no such file")
        await check_file(call, file)


async def _check_credentials(call: Call, config: TaskConfig, environment: EnvironmentSpec | None) -> None:
    named = environment.named_credentials if environment is not None else []
    found = []
    for name, given in config.credentials.items():
        where = f"/config/credentials/{name}"
        if name not in named:
            found.append(finding(where, "unknown_credential", "the environment of the task does not name it", named))
        found += find_without_tls(call, given, where)
    if environment is not None and named:
        owners = [name_user(call.caller.created_by), TENANT]
        stored = await credentials.list_all(call.pool, call.tenant, owners)
        known = {one.name: one for one in reversed(stored)}
        known |= {
            name: OwnedRules(owner=name_task(""), name=name, rules=one.rules())
            for name, one in config.credentials.items()
        }
        found += [
            finding("/config/environment", "credential", f"its credential {name}: {why}")
            for name, why in environment.unusable_credentials(known).items()
        ]
    if found:
        raise Invalid("The task cannot use a credential.", errors=found[:50])


def find_without_tls(call: Call, given: CredentialRules, where: str = "") -> list[Finding]:
    """The hosts to which a credential may not go."""
    allowed = [f"http://{place}" for place in call.settings.allow_private_hosts]
    said = "a credential travels over TLS, but to hosts that the operator names in ERRAND_ALLOW_PRIVATE_HOSTS"
    return [
        finding(f"{where}/hosts/{index}", "no_tls", said)
        for index, host in enumerate(given.hosts)
        if host.startswith("http://") and host not in allowed
    ]


def check_refs(config: TaskConfig, folders: list[str]) -> None:
    """Refuse a commit that is of no repository, or of which among several."""
    named = [one for one in folders if one]
    found = [
        finding(f"/config/refs/{one}", "not_found", "the task has no repository in this folder", named)
        for one in config.refs
        if one not in named
    ]
    if config.ref is not None and "" not in folders:
        why = "there are several repositories: refs names the commit of each" if named else "there is no repository"
        found.append(finding("/config/ref", "needs", why, named))
    if found:
        raise Invalid("A commit is given for no repository of the task.", errors=found)


def check_attempts(spec: TaskSpec, attempts: int, limits: Limits, *, sided: bool) -> None:
    """Refuse attempts where several sessions cannot do the same: they begin with the input at a commit. Those whose
    limits leave nothing for the choice would be made for nothing."""
    context = spec.context
    reasons = {
        "they begin at the same commit of a repository, and this task has none": not spec.config.has_tree,
        "they do not know earlier messages": bool(context.history or context.history_session),
        "a plan is approved for one session": spec.config.approval_required,
        "the agent has sides, hooks or other agents as its tools": sided,
        "to start them, to ask a person and to choose takes 3 steps": limits.steps < 3,
        "each is a tool call, and so is a question about them": limits.tool_calls is not None
        and limits.tool_calls <= attempts,
    }
    if found := [why for why, holds in reasons.items() if holds]:
        raise refuse("/config/attempts", "unavailable", found[0])


async def check_notify(pool: Pool, tenant: str, config: TaskConfig, ttl_ms: int) -> list[str]:
    """Check that reminders and escalations happen before the question expires, and name existing subscriptions. Returns
    notices about channels that nobody has subscribed."""
    bound = config.input_timeout or min(ttl_ms, (config.tree and config.tree.ttl) or ttl_ms)
    for name in ("reminder_after", "escalate_after"):
        after = getattr(config, name)
        if after is not None and after >= bound:
            raise refuse(f"/config/{name}", "out_of_range", "the question will have expired", [f"1000..{bound - 1}"])
    if bool(config.escalate_to) is (config.escalate_after is None):
        pair = ["escalate_to", "escalate_after"]
        raise refuse(f"/config/{pair[not config.escalate_to]}", "needs", "one needs the other", pair)
    if config.notify or config.routes or config.escalate_to:
        return await _check_subscriptions(pool, tenant, config)
    return []


async def _check_subscriptions(pool: Pool, tenant: str, config: TaskConfig) -> list[str]:
    active = [
        one for one in await notifications.list_subscriptions(pool, tenant) if one.status == SubscriptionStatus.ACTIVE
    ]
    names = sorted(one.name for one in active)
    known = [*names, *sorted({one.channel for one in active})]
    named = [*names, *ChannelName]  # of a channel, subscriptions may follow
    errors = [
        finding(f"/config/notify/{place}", "unknown_channel", "there is no such subscription or channel", named)
        for place, wanted in enumerate(config.notify)
        if wanted not in named
    ]
    errors += [
        finding(f"/config/routes/{kind}", "unknown_channel", "there is no such subscription or channel", known)
        for kind, wanted in config.routes.items()
        if wanted not in known
    ]
    second = config.escalate_to or {}
    # OpenAI's events are about ends: an escalation would arrive as a second one
    people = [one for one in names if one not in {sub.name for sub in active if sub.channel == ChannelName.OPENAI}]
    errors += [
        finding(f"/config/escalate_to{place}", "unknown_channel", "no such subscription takes escalations", people)
        for place, wanted in ([("", second)] if isinstance(second, str) else ((f"/{k}", v) for k, v in second.items()))
        if wanted not in people
    ]
    if errors:
        raise Invalid("The task names a subscription or channel that does not exist.", errors=errors)
    return [
        f"Nobody will be notified over {wanted}: it has no active subscription. Subscribe with POST /subscriptions or "
        f"`errand subscriptions add NAME {wanted} …`; one that is made before the task ends is notified too."
        for wanted in dict.fromkeys(config.notify)
        if wanted not in known
    ]


async def find_previous(call: Call, spec: TaskSpec) -> SessionRow | None:
    """The ended session whose history this task continues."""
    wanted = spec.context.history_session
    if wanted is None:
        return None
    found = await sessions.get(call.pool, call.tenant, wanted)
    pointer = "/context/history_session"
    if found is None:
        raise refuse(pointer, "not_found", "there is no such session")
    check_owner(call.caller, found, Right.READ)
    if not found.status.terminal:
        raise refuse(pointer, "not_terminal", "only a session that has ended can be continued from")
    return found


# What a session may do: rules, tools that the caller answers, and variables.


async def supervise(call: Call, spec: TaskSpec, agent: TaskAgent, before: dict[str, str]) -> Supervision:
    """A task's rules, tools and variables; `before` are the variables that the thread already has."""
    definition = agent.definition
    rules = read_rules(spec, definition)
    given = spec.config.external_tools
    if given:
        await _check_tools(given, list_reserved_names(definition, plans=rules.approval_required))
    values, missing = await _find_variables(call, spec, agent, before, rules.may_ask)
    return rules.model_copy(update={"external_tools": given, "variables": values, "missing": missing})


async def _find_variables(
    call: Call, spec: TaskSpec, agent: TaskAgent, before: dict[str, str], may_ask: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """The values of a task, and the descriptions of those that are missing."""
    definition = agent.definition
    has_shared = agent.tenant_has_variables or bool(call.settings.variables)
    asks = any(view.subagent_tools for view in definition.views)  # its subagents may ask for missing values
    if not (before or spec.context.variables or has_shared or asks or definition.all_variables):
        return {}, {}  # a plain agent
    # Otherwise the agents that it refers to do not matter now and need not be read.
    wide = bool(before or spec.context.variables or asks or (has_shared and definition.references))
    graph = await agents.find_reachable(call.pool, call.tenant, definition) if wide else {definition.name: definition}
    common = await call.services.shared_variables.of_graph(call.pool, call.tenant, graph) if has_shared else {}
    before = {**drop_shared(before), **common}
    looked_up = partial(look_up_variables, spec, definition, graph, before, may_ask)
    # a large graph takes long to look through, and other requests do not wait for that
    return await asyncio.to_thread(looked_up) if len(graph) > 1 else looked_up()


def read_rules(spec: TaskSpec, definition: AgentDefinition) -> Supervision:
    """The rules of a session, and whether it may ask people."""
    layers = [spec.permissions, *(spec.boundary.layers() if spec.boundary else [])]
    # a caller who requires approvals is available to give them
    attended = spec.config.approval_required or any(rule.action is Action.ASK for rule in spec.permissions)
    return Supervision(
        rules=[layer for layer in layers if layer],
        may_ask=definition.may_ask or attended,
        approval_required=spec.config.approval_required,
    )


def look_up_variables(
    spec: TaskSpec, definition: AgentDefinition, graph: Graph, before: dict[str, str], may_ask: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """The known values, and the descriptions of those to ask for; refused if nobody can be asked. A value may be for
    any agent of the graph, because subagents inherit it. Variables scoped to a subagent are asked for when it is
    created."""
    _check_known(spec, graph_variables(graph))
    values = before | spec.context.variables
    missing = find_missing(definition, values, graph)
    if missing and not may_ask:
        problems = [finding(f"/context/variables/{name}", "missing", text) for name, text in missing.items()]
        raise Invalid("The agent needs variables, and may not ask for them.", type="missing-variables", errors=problems)
    return values, missing


async def seal_variables(call: Call, spec: TaskSpec, definition: AgentDefinition) -> TaskSpec:
    """The task with its secret variables encrypted, before any of it is stored."""
    if not spec.context.variables:
        return spec
    known = graph_variables(await agents.find_reachable(call.pool, call.tenant, definition))
    _check_known(spec, known)  # before anything is done with them
    values = seal_secrets(call.services.keys, call.tenant, spec.context.variables, known)
    return spec.model_copy(update={"context": spec.context.model_copy(update={"variables": values})})


def _check_known(spec: TaskSpec, known: Mapping[str, Variable]) -> None:
    if unknown := [name for name in spec.context.variables if name not in known]:
        problems = [
            finding(f"/context/variables/{name}", "unknown_variable", "there is none", sorted(known))
            for name in unknown
        ]
        raise Invalid("The agent has no such variables.", errors=problems)


async def _check_tools(given: list[ExternalTool], reserved: set[str]) -> None:
    if found := await run_check(tool_problems, "config.external_tools", given, reserved):
        problems = [finding("/" + one.field.replace(".", "/"), "invalid", one.message, one.allowed) for one in found]
        raise Invalid("An external tool cannot be used.", errors=problems[:50])


# MCP servers that a task brings for itself: over HTTP, at hosts that the definition of its agent permits.


MCP = "/config/mcp_servers"


def refuse_brought(spec: TaskSpec) -> None:
    """Refuse servers and credentials in a request that starts no task, because its next turn would not have them."""
    for name, given in (("mcp_servers", spec.config.mcp_servers), ("credentials", spec.config.credentials)):
        if given:
            raise refuse(f"/config/{name}", "unavailable", "only a task that is submitted on its own can bring any")


async def add_servers(call: Call, spec: TaskSpec, agent: TaskAgent) -> TaskAgent:
    """The agent with the servers of the task, whose tool lists are read now."""
    own = agent.definition.mcp_servers
    given = {name: server.server() for name, server in spec.config.mcp_servers.items()}
    definition = agent.definition.model_copy(update={"mcp_servers": {**own, **given}})
    # before the discovery, which would already send requests to the server
    if found := [*_policy_problems(call, spec, agent.definition), *_server_problems(definition, given)]:
        raise Invalid("An MCP server of the task cannot be used.", errors=found[:50])
    wanted = [name for name in unread(definition) if name in given]
    named = {variable for server in given.values() for variable in server.variables()}
    # only the ones that its headers name: the others are none of the server's business
    values = {name: value for name, value in spec.context.variables.items() if name in named}
    values = seal_all(call.services.keys, call.tenant, values)
    lists = await call.services.workflows.discover(DiscoverTools.of(call.tenant, definition, wanted, values))
    if lists.problems:
        found = [finding(f"{MCP}/{name}", "unusable", why[:300]) for name, why in lists.problems.items()]
        raise Invalid("An MCP server of the task cannot be used.", errors=found)
    definition = with_lists(definition, lists)
    if problem := lists_problem(definition):
        raise refuse(MCP, "too_many", problem)
    return replace(agent, definition=definition)


def _policy_problems(call: Call, spec: TaskSpec, definition: AgentDefinition) -> list[Finding]:
    found: list[Finding] = []
    permitted = definition.task_mcp_hosts
    given = spec.config.mcp_servers
    if len(given) + len(definition.mcp_servers) > MOST_MCP_SERVERS:
        found.append(finding(MCP, "too_many", f"with those of the agent there may be {MOST_MCP_SERVERS}"))
    for name, task_server in given.items():
        server = task_server.server()
        if name in definition.mcp_servers:
            found.append(finding(f"{MCP}/{name}", "taken", "the agent has a server of this name"))
        if not any(fnmatchcase(server.host, pattern) for pattern in permitted):
            reason = "the agent does not permit servers at this host"
            found.append(finding(f"{MCP}/{name}/url", "not_permitted", reason, permitted))
        if _is_open(server.url, call.settings.allow_private_hosts):
            found.append(finding(f"{MCP}/{name}/url", "not_permitted", "the server of a task needs an https:// URL"))
        if Effect.READ in server.effects.values():  # it would run without approval, and again after a crash
            allowed = [one.value for one in Effect if one is not Effect.READ]
            reason = "only the definition of an agent can say that tools of a server just read"
            found.append(finding(f"{MCP}/{name}/effects", "not_permitted", reason, allowed))
        # a caller must not send the tenant's secrets to a server of its own choice
        if unknown := sorted(server.variables() - spec.context.variables.keys()):
            reason = f"the task does not bring the variable {unknown[0]}"
            found.append(finding(f"{MCP}/{name}/headers", "unknown_variable", reason, sorted(spec.context.variables)))
    return found


def _is_open(url: str, private: Iterable[str]) -> bool:
    """Whether requests would cross the internet unencrypted; `private`: hosts of the operator's own network."""
    try:
        place = urlsplit(url)
        names = {host_of(url), f"{host_of(url)}:{place.port or 80}"}
    except ValueError:
        return False  # another check refuses it
    return place.scheme == "http" and names.isdisjoint(one.lower() for one in private)


def _server_problems(definition: AgentDefinition, given: Mapping[str, McpServer]) -> list[Finding]:
    """The faults of these servers, by the same checks as for a definition."""
    return [
        finding("/config/" + one.field.replace(".", "/"), "invalid", one.message, one.allowed or None)
        for one in mcp_problems(definition)
        if one.field.split(".")[1] in given
    ]
