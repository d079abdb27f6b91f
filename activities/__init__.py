"""Activities: everything that touches the world. `build` wires them up; the worker registers what it returns.

A step of a session is model/call_model.py, then tools/run_tool.py for each call of its reply; read these two first.
What both use is beside this file: attempt.py (which attempt this is, and what a cancel means), workspaces.py,
thread_state.py, user_code.py, events.py, egress.py. sessions/ opens and ends sessions, requests/ asks people,
delegation/ starts other agents. mcp/, hooks/, handlers/, notifications/ and schedules/ are features that a plain task
does not enter, and so are trees.py, environments.py and pull_requests.py (repositories) and skills.py; dead_workers.py
runs when a worker starts. Only the worker and the bench import this package; the command line reads its registries.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from temporalio.client import Client

import domain  # noqa: F401 - finds the package errand
from activities.delegation.attempts import Attempts
from activities.delegation.messages import Subagents
from activities.delegation.plan import Planner
from activities.delegation.settle import HandOverThread, SettleDelegation
from activities.delegation.spawn import Activate, BeginDelegations
from activities.egress import Fetcher
from activities.environments import Environments
from activities.events import EventWriter
from activities.handlers.call_handler import CallHandler
from activities.hooks.hook import SessionHook
from activities.hooks.run_hooks import Hooks
from activities.mcp.discover import ShippedLists, ToolLists
from activities.model.call_model import Bounds, CallModel
from activities.model.models import Models
from activities.model.reply import Contexts
from activities.notifications.channels import Channel
from activities.notifications.deliver import Deliver
from activities.notifications.dispatcher import Dispatcher
from activities.pull_requests import Repositories
from activities.requests.open import InputRequests, Questions
from activities.sandbox import Commands
from activities.schedules.own import OwnSchedules
from activities.schedules.tick import Checks, Ticks
from activities.sessions.acceptance import AcceptanceChecks
from activities.sessions.finish import FinishSession
from activities.sessions.open import OpenSessions
from activities.thread_state import ThreadStates
from activities.tools.offered import Toolbox
from activities.tools.run_tool import Places, RunTool
from activities.tools.tool import Tool
from activities.trees import Mirrors, Trees
from activities.workspaces import Workspaces
from connectors import CONNECTORS
from connectors.connector import SenderPorts
from domain.agents.handler import Handler
from domain.notifications import ChannelName
from domain.sealing import KeyRing
from store.database import Pool
from store.variables import SharedVariables
from workflows.client import WorkflowClient
from workflows.schedules import ScheduleClient


@dataclass(frozen=True)
class ActivityServices:
    """The connections and programs that activities use, and the operator's limits for them."""

    pool: Pool
    temporal: Client
    task_queue: str
    models: Models
    events: EventWriter
    tools: dict[str, Tool]
    handlers: dict[str, Handler]  # take the turns of sides
    hooks: dict[str, SessionHook]  # run at certain moments of a session
    commands: Commands
    workspaces: Workspaces
    environments: Environments
    mirrors: Mirrors
    fetcher: Fetcher
    keys: KeyRing  # decrypt secrets from the database
    channels: dict[ChannelName, Channel]
    ports: SenderPorts
    dispatcher: Dispatcher
    subagent_depth: int
    max_children: int
    max_questions: int
    max_tool_calls: int
    variables: dict[str, str]  # of the deployment, for all threads


def build(services: ActivityServices) -> list[Callable[..., Any]]:
    """Every activity of the platform."""
    pool, tools = services.pool, services.tools
    models, toolbox, contexts = services.models, Toolbox(pool, tools), Contexts(pool)
    workflows = WorkflowClient(services.temporal, services.task_queue)
    times = ScheduleClient(services.temporal, services.task_queue)
    own_schedules = OwnSchedules(pool, times)
    subagents = Subagents(pool, workflows, own_schedules)
    checks = Checks(pool, services.workspaces, services.commands, tools, services.fetcher, subagents)
    states = ThreadStates(pool, services.keys, subagents, services.workspaces)
    hooks = Hooks(pool, services.hooks, states, services.workspaces)
    replying = (
        pool,
        models,
        services.events,
        contexts,
        toolbox,
        Bounds(pool, models),
        hooks,
    )
    run_tool = RunTool(
        pool,
        tools,
        services.workspaces,
        services.commands,
        services.fetcher,
        subagents,
        states,
        hooks,
        services.environments,
        Repositories(pool, services.mirrors, services.fetcher, services.workspaces.caps.file_bytes),
        Places(services.max_tool_calls),
    )
    planner = Planner(pool, tools, services.models, subagents, services.subagent_depth)
    begin = BeginDelegations(pool, workflows, tools, planner, subagents, services.max_children)
    questions = Questions(pool, toolbox)
    requests = InputRequests(pool, questions, workflows, services.max_questions)
    acceptance = AcceptanceChecks(
        pool,
        models,
        contexts,
        services.workspaces,
        services.commands,
        services.environments,
    )
    trees = Trees(pool, services.workspaces, services.mirrors, services.commands, services.environments)
    shared = SharedVariables(services.keys, services.variables)
    opening = OpenSessions(pool, services.temporal, shared)
    return [
        CallModel(*replying).call_model,
        Activate(*replying).activate,
        Attempts(*replying).attempts,
        CallHandler(services.handlers, *replying).call_handler,
        *run_tool.activities(),
        hooks.list_hooks,
        hooks.run_hooks,
        begin.begin_delegations,
        SettleDelegation(pool, subagents).settle_delegation,
        HandOverThread(pool, tools, services.models).hand_over,
        requests.open_request,
        requests.settle_request,
        requests.remind_request,
        trees.prepare_tree,
        trees.collect_changes,
        acceptance.check_acceptance,
        opening.restore_session,
        FinishSession(pool, workflows, services.events, contexts).finish_session,
        opening.open_sessions,
        opening.record_delivery,
        opening.load_conversation,
        Deliver(pool, services.channels, CONNECTORS, services.ports, services.keys).deliver,
        Ticks(pool, times, workflows, checks, shared).tick,
        _tool_lists(services).discover_tools,
    ]


def _tool_lists(services: ActivityServices) -> ToolLists:
    return ToolLists(services.pool, services.fetcher, services.commands, services.keys, services.variables)


def build_shipped_lists(services: ActivityServices) -> ShippedLists:
    """Apart, because a worker reads the tool lists of shipped agents before it takes up any work."""
    return ShippedLists(services.pool, _tool_lists(services))
