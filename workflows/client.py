"""The only door for outsiders: how the API, the CLI and activities reach the workflows."""

import asyncio
import contextlib
import time
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import BaseModel
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from domain.conversations.requests import (
    ClaimOutcomes,
    ConversationInput,
    Fire,
    Fired,
    Nothing,
    Promote,
    SessionDone,
    Spawn,
    SpawnAnswers,
    StartSession,
    Steer,
    Steered,
)
from domain.errors import Unavailable
from domain.ids import new_id
from domain.sessions.input_request import RequestAnswered
from domain.sessions.session import SessionInput
from domain.sessions.step import StopRequest
from workflows.appearance import appearance
from workflows.attributes import of_conversation
from workflows.client_errors import is_away, is_not_yet, is_over, refusal
from workflows.telemetry import plugins

ANSWER_WITHIN = timedelta(seconds=2)
DECIDE_WITHIN = timedelta(seconds=15)  # for what a worker must decide before the caller gets an answer
RENEWS_IN = 0.1
Answer = TypeVar("Answer", bound=BaseModel)


def session_workflow_id(session_id: str) -> str:
    return f"session/{session_id}"


def conversation_workflow_id(conversation_id: str) -> str:
    return f"conversation/{conversation_id}"


async def connect(
    *, lazy: bool = False, identity: str | None = None, address: str | None = None, telemetry: str | None = None
) -> Client:
    """Address, namespace, TLS and API key come from the SDK's own environment configuration, if no address is given.
    `telemetry` is where traces are sent to."""
    config = ClientConfig.load_client_connect_config()
    if address is not None:
        config["target_host"] = address
    config.setdefault("target_host", "127.0.0.1:7233")
    extra: dict[str, Any] = {"identity": identity} if identity else {}
    extra["plugins"] = plugins(telemetry)
    return await Client.connect(**config, **extra, data_converter=pydantic_data_converter, lazy=lazy)


class WorkflowClient:
    """What may be asked of the workflows."""

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._queue = task_queue

    # sessions that were accepted and written down; False: Temporal or its workers are away, the sweeper will see to it

    async def start(self, session: SessionInput) -> bool:
        """Start the first session of a conversation, whose own workflow begins when there is something to decide."""
        try:
            name, how = session_workflow_id(session.ref.session_id), appearance(session)
            await self._client.start_workflow(
                "Session", session, id=name, task_queue=self._queue, rpc_timeout=ANSWER_WITHIN, **how
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
            await self._ask(session.ref.tenant, session.ref.conversation_id, "submit", submission, None, ANSWER_WITHIN)
        except Unavailable:
            return False
        return True

    async def reopen(self, tenant: str, conversation_id: str, *, look: bool = False) -> None:
        """Let a conversation go on with what the store knows; one that lives is left alone, unless it has to look."""
        start = ConversationInput(tenant=tenant, conversation_id=conversation_id)
        how = {**self._conversation(start), "start_signal": "look" if look else None}
        await self._client.start_workflow("Conversation", start, **how, rpc_timeout=ANSWER_WITHIN)

    async def stop(self, session_id: str, request: StopRequest) -> bool:
        """Ask a session to stop; if nobody answers in time the request stands in its row and is honoured from there."""
        handle = self._client.get_workflow_handle(session_workflow_id(session_id))
        try:
            await handle.start_update(
                "stop", request, wait_for_stage=WorkflowUpdateStage.ACCEPTED, rpc_timeout=ANSWER_WITHIN
            )
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            return False
        except (RPCError, RuntimeError) as error:
            if is_away(error) or is_over(error):
                return False
            raise
        return True

    # what the conversation decides; a refusal is a domain error, an unanswered question Unavailable

    async def spawn(self, tenant: str, conversation_id: str, spawn: Spawn) -> SpawnAnswers:
        return await self._ask(tenant, conversation_id, "spawn", spawn, SpawnAnswers)

    async def claim(self, tenant: str, conversation_id: str, claim: ClaimOutcomes) -> None:
        await self._ask(tenant, conversation_id, "claim", claim, None)

    async def fire(self, tenant: str, conversation_id: str, fire: Fire) -> Fired:
        return await self._ask(tenant, conversation_id, "fire", fire, Fired)

    async def steer(self, tenant: str, conversation_id: str, steer: Steer) -> Steered:
        return await self._ask(tenant, conversation_id, "steer", steer, Steered)

    async def promote(self, tenant: str, conversation_id: str, promote: Promote) -> None:
        await self._ask(tenant, conversation_id, "promote", promote, None)

    async def mailbox(self, conversation_id: str) -> list[str] | None:
        """The pending ids as the live conversation sees them; None if it has closed, which it does only when empty."""
        handle = self._client.get_workflow_handle(conversation_workflow_id(conversation_id))
        try:
            pending: list[str] = await handle.query("mailbox", result_type=list[str], rpc_timeout=DECIDE_WITHIN)
        except (RPCError, RuntimeError) as error:
            if is_over(error):
                return None
            raise Unavailable("No worker answered for the live mailbox.") from error
        except WorkflowQueryFailedError as error:
            raise Unavailable("The live mailbox could not be read.") from error
        return pending

    # words; one that has closed needs none of them. False: Temporal did not take them

    async def answered(self, session_id: str, request_id: str) -> bool:
        """Tell a session that a request of it has an answer."""
        return await self._tell(session_workflow_id(session_id), "answered", RequestAnswered(id=request_id))

    async def tell_terminated(self, conversation_id: str) -> bool:
        """Let a conversation close although outcomes wait in it."""
        return await self._tell(conversation_workflow_id(conversation_id), "terminated")

    async def tell_done(self, conversation_id: str, done: SessionDone) -> bool:
        """Tell a conversation that one of its sessions is gone, if it has begun."""
        return await self._tell(conversation_workflow_id(conversation_id), "session_done", done)

    async def _tell(self, workflow_id: str, signal: str, *words: BaseModel) -> bool:
        handle = self._client.get_workflow_handle(workflow_id)
        try:
            await handle.signal(signal, args=words, rpc_timeout=ANSWER_WITHIN)
        except (RPCError, RuntimeError) as error:
            return is_over(error)
        return True

    async def sweep(self) -> None:
        """One look right now, beside those that are made anyway."""
        await self._client.execute_workflow("Sweeper", 1, id=f"sweeper/{new_id()}", task_queue=self._queue)

    async def healthy(self) -> bool:
        try:
            await self._client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=ANSWER_WITHIN)
        except (RPCError, RuntimeError):
            return False
        return True

    def _conversation(self, start: ConversationInput) -> dict[str, Any]:
        return {
            "id": conversation_workflow_id(start.conversation_id),
            "task_queue": self._queue,
            "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
            "static_summary": f"conversation · {start.conversation_id}",
            "search_attributes": of_conversation(start.tenant, start.conversation_id),
        }

    async def _ask(
        self,
        tenant: str,
        conversation_id: str,
        update: str,
        argument: Any,
        result: type[Answer] | None,
        within: timedelta = DECIDE_WITHIN,
    ) -> Answer:
        """An Update on the conversation, which is started again if it has closed."""
        give_up = time.monotonic() + within.total_seconds()
        while True:
            left = timedelta(seconds=give_up - time.monotonic())
            try:
                answer = await self._update(tenant, conversation_id, update, argument, result, left)
                break
            except WorkflowUpdateFailedError as error:
                raise refusal(error.cause) from error
            except WorkflowUpdateRPCTimeoutOrCancelledError as error:
                raise Unavailable("No worker answered in time.") from error
            except (RPCError, RuntimeError) as error:
                if is_away(error):
                    raise Unavailable("Temporal is away.") from error
                if not is_not_yet(error):
                    raise
                if time.monotonic() + RENEWS_IN > give_up:
                    raise Unavailable("The conversation is being renewed; try again.") from error
                await asyncio.sleep(RENEWS_IN)
        return answer if result is not None else Nothing()  # type: ignore[return-value]

    async def _update(
        self, tenant: str, conversation_id: str, update: str, argument: Any, result: type[Any] | None, within: timedelta
    ) -> Any:
        start = ConversationInput(tenant=tenant, conversation_id=conversation_id)
        operation: Any = WithStartWorkflowOperation("Conversation", start, **self._conversation(start))
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
                await operation.workflow_handle()  # it failed likewise, and would complain that nobody asked
            raise
