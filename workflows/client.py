"""The clients of our workflows. The API, the CLI and the activities reach workflows only through them."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import BaseModel, Field
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, GetSystemInfoRequest
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowFailureError,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from domain import wire
from domain.agents.mcp_discovery import DiscoveredTools, DiscoverTools
from domain.conversations.requests import (
    ClaimOutcomes,
    ConversationInput,
    EndedSession,
    Fire,
    Fired,
    Nothing,
    PendingOutcome,
    Promote,
    SpawnAnswers,
    SpawnRequest,
    StartSession,
    Steer,
    Steered,
)
from domain.errors import Conflict, ErrandError, Invalid, NotFound, TooMany, Unavailable
from domain.ids import conversation_workflow_id, new_id, session_workflow_id
from domain.sealing import KeyRing
from domain.sessions.input_request import RequestAnswered
from domain.sessions.session import Limits, StopRequest
from domain.sessions.session_state import SessionInput
from domain.wire import SessionRefusal
from workflows.codec import data_converter
from workflows.telemetry import plugins
from workflows.ui import SEARCH_ATTRIBUTES, conversation_options, start_options

log = logging.getLogger("errand.workflows")
ANSWER_WITHIN = timedelta(seconds=2)
DECIDE_WITHIN = timedelta(seconds=15)  # for updates, which a worker must handle before the caller gets an answer
QUEUE_WITHIN = timedelta(seconds=3)
DISCOVERY_WITHIN = timedelta(seconds=50)
RETRY_PAUSE_S = 0.1

Answer = TypeVar("Answer", bound=BaseModel)


async def connect(
    *,
    lazy: bool = False,
    identity: str | None = None,
    address: str | None = None,
    telemetry: str | None = None,
    keys: KeyRing | None = None,
    encrypts: bool = False,
) -> Client:
    """Connect to Temporal. Address, namespace, TLS and API key come from the SDK's own environment configuration,
    unless an address is given. `telemetry` is the endpoint for traces. `keys` decrypt payloads and, with
    `encrypts`, encrypt them."""
    config = ClientConfig.load_client_connect_config()
    if address is not None:
        config["target_host"] = address
    config.setdefault("target_host", "127.0.0.1:7233")
    extra: dict[str, Any] = {"identity": identity} if identity else {}
    extra["plugins"] = plugins(telemetry)
    return await Client.connect(**config, **extra, data_converter=data_converter(keys, encrypts=encrypts), lazy=lazy)


_KINDS = {"workflow": TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, "activity": TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY}


class QueueState(BaseModel):
    name: str
    kind: str = Field(description="workflow: decisions that wait; activity: model calls, tools and writes that wait")
    backlog: int = Field(description="about how many tasks wait for a worker")
    oldest_ms: int = Field(description="about how long the oldest of them has waited")
    added_per_second: float = Field(description="over the last 30 seconds")
    taken_per_second: float = Field(description="over the last 30 seconds")
    pollers: int = Field(description="workers that asked for tasks lately")


class WorkflowClient:
    """Starts, updates, signals and queries our workflows."""

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._queue = task_queue
        self.namespace = client.namespace

    # Sessions whose row exists. False: Temporal or its workers are unreachable, and a worker repeats it later.

    async def start(self, session: SessionInput) -> bool:
        """Start the first session of a conversation. The Conversation workflow begins with its first decision."""
        try:
            await self._client.start_workflow(
                wire.SESSION,
                session,
                id=session_workflow_id(session.ref.session_id),
                task_queue=self._queue,
                rpc_timeout=ANSWER_WITHIN,
                **start_options(session, self._client.namespace),
            )
        except WorkflowAlreadyStartedError:
            return True
        except (RPCError, RuntimeError) as error:
            if is_away(error):
                return False
            raise
        return True

    async def submit(self, session: SessionInput, request_id: str, thread_id: str, *, queued: bool = False) -> bool:
        """Start a further session of a conversation, which is reopened if it has closed."""
        submission = StartSession(request_id=request_id, session=session, thread_id=thread_id, queued=queued)
        try:
            await self._ask(
                session.ref.tenant, session.ref.conversation_id, wire.SUBMIT, submission, None, ANSWER_WITHIN
            )
        except Unavailable:
            return False
        return True

    async def reopen(self, tenant: str, conversation_id: str, *, reload: bool = False) -> None:
        """Start a conversation with the state in the store. A running one is left alone, unless it has to reload."""
        start = ConversationInput(tenant=tenant, conversation_id=conversation_id, renew_after=wire.RENEW_AFTER)
        try:
            await self._client.start_workflow(
                wire.CONVERSATION,
                start,
                id=conversation_workflow_id(conversation_id),
                task_queue=self._queue,
                **conversation_options(tenant, conversation_id),
                start_signal=wire.RELOAD if reload else None,
                rpc_timeout=ANSWER_WITHIN,
            )
        except (RPCError, RuntimeError) as error:
            if is_away(error):
                raise Unavailable("Temporal is unreachable.") from error
            raise

    async def stop(self, session_id: str, request: StopRequest) -> bool:
        """Ask a session to stop. False if Temporal did not accept it.

        It is a signal, because Temporal stores a signal at once. An update is stored only once a worker has accepted
        it: with many stops at once most would time out and be repeated, which keeps the workers from the first ones."""
        handle = self._client.get_workflow_handle(session_workflow_id(session_id))
        error = await _failure_of(handle.signal(wire.STOP, request, rpc_timeout=ANSWER_WITHIN))
        if isinstance(error, RPCError) and error.status is RPCStatusCode.INVALID_ARGUMENT:
            # a run takes a limited number of signals, but always a cancel: it then stops without grace
            error = await _failure_of(handle.cancel(rpc_timeout=ANSWER_WITHIN))
        return error is None or is_over(error)

    # Updates of a conversation. A refusal is raised as a domain error, an update without an answer as Unavailable.

    async def spawn(self, tenant: str, conversation_id: str, spawn: SpawnRequest) -> SpawnAnswers:
        return await self._ask(tenant, conversation_id, wire.SPAWN, spawn, SpawnAnswers)

    async def claim(self, tenant: str, conversation_id: str, claim: ClaimOutcomes) -> None:
        await self._ask(tenant, conversation_id, wire.CLAIM, claim, None)

    async def fire(self, tenant: str, conversation_id: str, fire: Fire) -> Fired:
        return await self._ask(tenant, conversation_id, wire.FIRE, fire, Fired)

    async def steer(self, tenant: str, conversation_id: str, steer: Steer, limit: timedelta = DECIDE_WITHIN) -> Steered:
        return await self._ask(tenant, conversation_id, wire.STEER, steer, Steered, limit)

    async def promote(self, tenant: str, conversation_id: str, promote: Promote) -> None:
        await self._ask(tenant, conversation_id, wire.PROMOTE, promote, None)

    async def mailbox(self, conversation_id: str) -> list[PendingOutcome] | None:
        """The pending outcomes in the running conversation; None if it has closed, as it does when it has none."""
        handle = self._client.get_workflow_handle(conversation_workflow_id(conversation_id))
        try:
            pending: list[PendingOutcome] = await handle.query(
                wire.MAILBOX, result_type=list[PendingOutcome], rpc_timeout=DECIDE_WITHIN
            )
        except (RPCError, RuntimeError) as error:
            if is_over(error):
                return None
            raise Unavailable("No worker answered for the live mailbox.") from error
        except WorkflowQueryFailedError as error:
            raise Unavailable("The live mailbox could not be read.") from error
        return pending

    # Signals. A closed workflow does not need them. False: Temporal did not accept the signal.

    async def signal_answer(self, session_id: str, request_id: str) -> bool:
        """Signal to a session that one of its input requests was answered; the row says so, for a sweep to repeat."""
        return await self._signal(session_workflow_id(session_id), wire.ANSWERED, RequestAnswered(id=request_id))

    async def signal_limits(self, session_id: str, limits: Limits) -> bool:
        """Signal raised limits to a session. False if Temporal did not accept it, or has no such workflow (yet)."""
        return await self._signal(session_workflow_id(session_id), wire.LIMITS_RAISED, limits)

    async def signal_termination(self, conversation_id: str) -> bool:
        """Let a conversation close even if outcomes wait in it."""
        return await self._signal(conversation_workflow_id(conversation_id), wire.TERMINATED)

    async def post(self, conversation_id: str, ended: EndedSession) -> bool:
        """Post the end of a session to its conversation, if the conversation has begun."""
        return await self._signal(conversation_workflow_id(conversation_id), wire.POST, ended)

    async def _signal(self, workflow_id: str, signal: str, *arguments: BaseModel) -> bool:
        handle = self._client.get_workflow_handle(workflow_id)
        error = await _failure_of(handle.signal(signal, args=arguments, rpc_timeout=ANSWER_WITHIN))
        return error is None or is_over(error)

    async def healthy(self) -> bool:
        with contextlib.suppress(RPCError, RuntimeError):
            await self._client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=ANSWER_WITHIN)
            return True
        return False

    async def missing(self) -> list[str]:
        """What Temporal lacks to start tasks: its database may have been deleted, or replaced by another one."""
        rpc, namespace = self._client, self._client.namespace
        found: list[str] = []
        try:
            request = ListSearchAttributesRequest(namespace=namespace)
            present = await rpc.operator_service.list_search_attributes(request, timeout=ANSWER_WITHIN)
            found += [
                f"search attribute {key.name}" for key in SEARCH_ATTRIBUTES if key.name not in present.custom_attributes
            ]
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return [f"namespace {namespace}"]
            if error.status not in (RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED):  # as in the cloud
                raise
        return found

    async def discover(self, wanted: DiscoverTools) -> DiscoveredTools:
        """Let a worker read the tool lists of MCP servers."""
        try:
            async with asyncio.timeout(DISCOVERY_WITHIN.total_seconds()):
                found: DiscoveredTools = await self._client.execute_workflow(
                    wire.TOOL_DISCOVERY,
                    wanted,
                    id=f"tool-discovery/{new_id()}",
                    task_queue=self._queue,
                    result_type=DiscoveredTools,
                    execution_timeout=DISCOVERY_WITHIN,
                    task_timeout=wire.TASK_TIMEOUT,
                    static_summary=f"tool lists of the MCP servers of {wanted.agent.name}",
                )
                return found
        except (WorkflowFailureError, TimeoutError) as error:
            raise Unavailable("No worker has read the tool lists of the MCP servers in time.") from error
        except (RPCError, RuntimeError) as error:
            raise Unavailable("Temporal is unreachable.") from error

    async def queue_states(self) -> list[QueueState]:
        try:
            return list(await asyncio.gather(*(self._queue_state(kind) for kind in _KINDS)))
        except (RPCError, RuntimeError) as error:
            raise Unavailable("Temporal cannot be reached, or does not describe its queues.") from error

    async def _queue_state(self, kind: str) -> QueueState:
        request = DescribeTaskQueueRequest(
            namespace=self._client.namespace,
            task_queue=TaskQueue(name=self._queue),
            task_queue_type=_KINDS[kind],
            report_stats=True,
        )
        found = await self._client.workflow_service.describe_task_queue(request, timeout=QUEUE_WITHIN)
        stats = found.stats
        return QueueState(
            name=self._queue,
            kind=kind,
            backlog=stats.approximate_backlog_count,
            oldest_ms=stats.approximate_backlog_age.ToMilliseconds(),
            added_per_second=round(stats.tasks_add_rate, 2),
            taken_per_second=round(stats.tasks_dispatch_rate, 2),
            pollers=len(found.pollers),
        )

    async def _ask(
        self,
        tenant: str,
        conversation_id: str,
        update: str,
        argument: Any,
        result: type[Answer] | None,
        within: timedelta = DECIDE_WITHIN,
    ) -> Answer:
        """Send an update to a conversation, and restart the conversation if it has closed."""
        give_up = time.monotonic() + within.total_seconds()
        while True:
            left = timedelta(seconds=max(give_up - time.monotonic(), 0.001))  # the SDK accepts no negative timeout
            try:
                async with asyncio.timeout(left.total_seconds()):  # the SDK's own timeout is for a single call
                    answer = await self._update(tenant, conversation_id, update, argument, result, left)
                return answer if result is not None else Nothing()  # type: ignore[return-value]
            except WorkflowUpdateFailedError as error:
                raise refusal(error.cause) from error
            except (WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError) as error:
                raise Unavailable("No worker answered in time.") from error
            except (RPCError, RuntimeError) as error:
                if is_away(error):
                    raise Unavailable("Temporal is unreachable.") from error
                if not is_not_yet(error):
                    raise
                if time.monotonic() + RETRY_PAUSE_S > give_up:
                    raise Unavailable("The conversation is being renewed; try again.") from error
                await asyncio.sleep(RETRY_PAUSE_S)

    async def _update(
        self, tenant: str, conversation_id: str, update: str, argument: Any, result: type[Any] | None, within: timedelta
    ) -> Any:
        start = ConversationInput(tenant=tenant, conversation_id=conversation_id, renew_after=wire.RENEW_AFTER)
        operation: Any = WithStartWorkflowOperation(
            wire.CONVERSATION,
            start,
            id=conversation_workflow_id(conversation_id),
            task_queue=self._queue,
            **conversation_options(tenant, conversation_id),
        )
        try:
            return await self._client.execute_update_with_start_workflow(
                update,
                argument,
                start_workflow_operation=operation,
                id=f"{update}/{argument.request_id}",
                result_type=result,
                rpc_timeout=within,
            )
        except (WorkflowUpdateRPCTimeoutOrCancelledError, RPCError):
            with contextlib.suppress(Exception):
                # it failed too; without this asyncio logs an error that was never retrieved
                await operation.workflow_handle()
            raise


# Why a workflow did not do what was requested: it refused, was unreachable, or was not ready yet.

_UNREACHABLE = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.UNKNOWN,  # the connection broke during a call
        RPCStatusCode.INTERNAL,
    }
)

_NOT_YET = frozenset(
    {
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.ABORTED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.NOT_FOUND,
    }
)


async def _failure_of(sent: Awaitable[None]) -> Exception | None:
    try:
        await sent
    # any error: a row says what the signal says, and its writing must not seem to have failed
    except Exception as error:
        if not isinstance(error, RPCError | RuntimeError):
            log.exception("a signal was not sent")
        return error
    return None


def is_away(error: RPCError | RuntimeError) -> bool:
    """Whether Temporal is unreachable. A lazy client whose first connection fails raises a RuntimeError."""
    return not isinstance(error, RPCError) or error.status in _UNREACHABLE


def is_not_yet(error: RPCError | RuntimeError) -> bool:
    """Whether the workflow never saw the update, so that it can be sent again: its workflow task was discarded, as at
    continue-as-new, the workflow is closing, or too many updates are in progress."""
    return isinstance(error, RPCError) and error.status in _NOT_YET


def is_over(error: Exception) -> bool:
    """Whether the workflow has closed or never began."""
    return isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND


def refusal(cause: BaseException | None) -> ErrandError:
    """Convert a conversation's refusal to an error of the API."""
    if not isinstance(cause, ApplicationError):
        return Unavailable("The conversation could not decide; try again.")
    if cause.type == wire.CONVERSATION_BUSY:
        active = cause.details[0] if cause.details else {}
        return Conflict(
            "Another session of this conversation is running.", type="conversation-busy", active_session=active
        )
    if cause.type == wire.MAILBOX_EMPTY:
        return Invalid("The mailbox is empty: there is nothing to fire.", type="mailbox-empty")
    if cause.type == wire.NOT_RUNNING:
        return NotFound(cause.message, type="not-running")
    if cause.type == SessionRefusal.TERMINATED:
        return Conflict("The conversation was terminated.", type="conversation-terminated")
    if cause.type == SessionRefusal.QUOTA:
        return TooMany("This key has as many live tasks as it may have.", type="live-tasks", retry_after=10)
    if cause.type == SessionRefusal.MAIL_TAKEN:
        return Conflict("Another request took some of these messages; try again.", type="mailbox-changed")
    if cause.type == SessionRefusal.BUDGET_SPENT:
        return Conflict("The conversation's budget is spent; a message may bring a new one.", type="budget-spent")
    return Unavailable(cause.message)
