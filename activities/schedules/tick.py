"""tick: a due time of a schedule becomes a message, or a row with the reason why not. A retry finds the decision.

First the tick, then the check of a schedule, which may end the run before a model is called.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.attempt import with_heartbeats
from activities.delegation.messages import Subagents
from activities.egress import Fetcher
from activities.environments import open_network
from activities.sandbox import Commands, NetworkPolicy
from activities.thread_state import ThreadState
from activities.tools.rules import judge_call
from activities.tools.run_tool import GRACE_SECONDS
from activities.tools.tool import Tool, ToolContext, clean
from activities.user_code import run_within
from activities.workspaces import Workspaces
from domain import wire
from domain.agents.definition import AgentDefinition
from domain.conversations.requests import Steer
from domain.errors import Invalid, NotFound, Unavailable
from domain.ids import derive_id
from domain.missions import Hold
from domain.policy.rules import Action, verdict
from domain.redaction import Redactor
from domain.schedules import (
    Check,
    ContextMode,
    MissedTicks,
    Mission,
    Overlap,
    RunStatus,
    Schedule,
    ScheduleRun,
    TickCall,
    TickOutcome,
    tick_text,
)
from domain.sessions.session import Effect, Reason, RecordedStop, SessionRef, StopRequest
from store import conversations, missions, schedule_runs, schedules, sessions, workspaces
from store.agents import UnreadableAgent, load_view
from store.database import Pool
from store.sessions import SessionRow
from store.variables import SharedVariables
from workflows.client import WorkflowClient
from workflows.schedules import ScheduleClient

log = logging.getLogger("errand.worker")
GONE = TickOutcome(status="gone", reason="the schedule was deleted")
NOTHING_TO_DO = 3  # exit code of a check
OUTPUT_CHARS = 20_000


@dataclass
class Ticks:
    _pool: Pool
    _times: ScheduleClient
    _workflows: WorkflowClient
    _checks: "Checks"
    _shared: SharedVariables

    @activity.defn(name="tick")
    @with_heartbeats
    async def tick(self, call: TickCall) -> TickOutcome:
        await schedule_runs.settle(self._pool)  # first, so that a schedule that fails too often is paused
        schedule = await schedules.get(self._pool, call.tenant, call.schedule_id)
        if schedule is None or schedule.deleted_at is not None:
            return GONE
        known = await schedule_runs.get(self._pool, call)
        text, mission, session = schedule.prompt, None, None
        if known is None:
            mission = await self._mission(schedule)
            admitted = await missions.admit(self._pool, mission, None) if mission else None
            if isinstance(admitted, Hold):
                return _outcome(await schedule_runs.record(self._pool, call, RunStatus.SKIPPED, admitted.text))
            status, reason, text = await self._before(schedule, call)
            if status is not None:
                return _outcome(await schedule_runs.record(self._pool, call, status, reason))
            try:
                session = await self._shared.renew(self._pool, call.tenant, schedule.session)
            except (Invalid, UnreadableAgent) as error:
                return _outcome(await schedule_runs.record(self._pool, call, RunStatus.FAILED, error.detail))
            if schedule.rules.overlap is Overlap.CANCEL_PREVIOUS:
                await self._cancel_previous(schedule)
        fired = await schedule_runs.fire(self._pool, call, text, mission, session)
        if fired is None:
            return GONE
        run, session = fired
        if run.status is RunStatus.STEERED:
            await self._steer(schedule, call)
        elif run.status is RunStatus.FIRED and session is not None:
            await self._start(session)
        return _outcome(run)

    async def _mission(self, schedule: Schedule) -> Mission | None:
        """The mission that a run belongs to: the schedule's own, or that of the conversation which it continues."""
        if schedule.status is not None:
            return await missions.settle(self._pool, schedule.tenant, schedule.id)
        if schedule.rules.context is not ContextMode.CONTINUE:
            return None
        return await missions.settle_of_conversation(self._pool, schedule.tenant, schedule.conversation_id)

    async def _before(self, schedule: Schedule, call: TickCall) -> tuple[RunStatus | None, str, str]:
        """The reason to end the tick before its message is sent, if there is one, and the message."""
        rules = schedule.rules
        if not call.manual and schedule.paused:
            return RunStatus.SKIPPED, "paused", ""
        if not call.manual and (missed := await self._find_missed(schedule, call.at)) is not None:
            return RunStatus.SKIPPED, missed, ""
        if not call.manual and rules.quiet_hours and rules.quiet_hours.cover(call.at, rules.timezone):
            return RunStatus.SKIPPED, "quiet hours", ""
        if rules.check is None:
            return None, "", schedule.prompt
        try:
            output = await self._checks.run(schedule, rules.check)
        except (CheckFailed, UnreadableAgent) as error:
            return RunStatus.FAILED, f"the check failed: {error}", ""
        if not output:
            return RunStatus.SKIPPED, "the check found nothing to do", ""
        return None, "", tick_text(schedule.prompt, output)

    async def _find_missed(self, schedule: Schedule, at: datetime) -> str | None:
        """Why a late tick is skipped. A backfill asks for late ticks, so those run."""
        rule, now = schedule.rules.missed, datetime.now(UTC)
        # the first scheduled time: a tick is not late because its worker died
        if rule is MissedTicks.EACH or not schedule.is_late(at, activity.info().scheduled_time):
            return None
        if await schedules.is_backfilled(self._pool, schedule, at):
            return None
        if rule is MissedTicks.SKIP:
            return "missed"
        return "missed, as was a later one" if await self._times.is_due(schedule.id, at, now) else None

    async def _start(self, session: SessionRow) -> None:
        """Start the session. Its row is written, so a sweep repeats whatever fails here."""
        if session.status.terminal:
            return
        if session.id == session.conversation_id:
            started = await self._workflows.start(session.workflow_input())
        else:
            started = await self._workflows.submit(
                session.workflow_input(), session.id, session.thread_id, queued=not session.live
            )
        if not started:
            log.warning("session %s waits for Temporal or a worker", session.id)

    async def _steer(self, schedule: Schedule, call: TickCall) -> None:
        message_id = schedule.message_id(call.at)
        written = await conversations.get_message_state(self._pool, call.tenant, message_id)
        if written is None or written.by is not None:
            return
        steer = Steer(
            request_id=derive_id(message_id, activity.info().attempt),
            thread=schedule.conversation_id,
            message=message_id,
        )
        try:
            await self._workflows.steer(call.tenant, schedule.conversation_id, steer)
        except NotFound:
            if await schedule_runs.unsteer(self._pool, schedule, call):
                raise ApplicationError("The session ended before it was given the message.") from None
            return
        except Unavailable as error:
            raise ApplicationError(error.detail, type=wire.CONVERSATION_UNREACHABLE) from error
        await conversations.mark_signalled(self._pool, call.tenant, message_id)

    async def _cancel_previous(self, schedule: Schedule) -> None:
        """Stop sessions that earlier runs left running or waiting. The rows record it first, so a sweep can repeat
        it."""
        by = f"schedule {schedule.rules.name}"
        stop = StopRequest(reason=Reason.CALLER_CANCEL, by=by, note="the next run is due")
        for session in await schedule_runs.find_unfinished(self._pool, schedule.tenant, schedule.id):
            if await sessions.record_stop(self._pool, session, RecordedStop(**dict(stop), at=datetime.now(UTC))):
                await self._workflows.stop(session.id, stop)


def _outcome(run: ScheduleRun | None) -> TickOutcome:
    return TickOutcome(status=run.status, reason=run.reason, session_id=run.session_id) if run else GONE


# The check of a schedule: a sandboxed command or a tool decides whether a model is called at all.


class CheckFailed(Exception):
    """The text is the reason of a run that failed for its check."""


@dataclass
class Checks:
    _pool: Pool
    _workspaces: Workspaces
    _commands: Commands
    _tools: Mapping[str, Tool]
    _fetcher: Fetcher
    _subagents: Subagents

    async def run(self, schedule: Schedule, check: Check) -> str:
        """The output for the agent; empty: there is nothing to do. The command is the owner's own, so the agent's rules
        do not apply; the sandbox and the task's rules do."""
        session = schedule.session
        agent = await load_view(self._pool, session.agent_ref)
        sandbox = session.task.config.sandbox
        version, _ = await workspaces.get(self._pool, schedule.tenant, schedule.conversation_id)
        network = open_network(self._commands, agent, sandbox, session.rules)
        with self._workspaces.use(schedule.tenant, schedule.conversation_id):
            folder = await self._workspaces.ready(schedule.tenant, schedule.conversation_id, version)
            if check.run is None:
                return await self._tool(schedule, check, agent, folder, network)
            result = await self._commands.run(check.run, folder, check.timeout_s, network)
        output = clean(result.output).strip()[:OUTPUT_CHARS]
        if result.exit_code in (0, NOTHING_TO_DO):
            return output if result.exit_code == 0 else ""
        ended = f"exit code {result.exit_code}" if not result.timed_out else f"stopped after {check.timeout_s} s"
        raise CheckFailed(result.refusal or result.stopped or f"{ended}: {output[-300:]}")

    async def _tool(
        self, schedule: Schedule, check: Check, agent: AgentDefinition, folder: Path, network: NetworkPolicy | None
    ) -> str:
        """Run the tool. It is the agent's, so its rules apply. It may only read, because nothing fences a check."""
        tool = self._tools.get(check.tool or "")
        if tool is None or tool.name not in agent.tools or tool.effect is not Effect.READ or tool.activity is not None:
            raise CheckFailed(f"{check.tool} is not a read-only tool of the agent")
        layers = [agent.permissions, *schedule.session.rules]
        if (found := judge_call(tool, check.input, layers)).action is not Action.ALLOW:
            raise CheckFailed(f"the rules do not allow it: {found.because}")
        ref = SessionRef(
            tenant=schedule.tenant, session_id=schedule.conversation_id, conversation_id=schedule.conversation_id
        )

        key = f"check:{schedule.id}"

        async def keep_none() -> None:
            """Refuse: a check must not change anything."""

        async def refuse_values(_: object) -> list[str]:
            raise RuntimeError("a check has no thread whose variables it could set")

        async def permits(subject: str) -> bool:
            return verdict(layers, tool, [subject]).action is Action.ALLOW

        context = ToolContext(
            ref=ref,
            agent=agent.name,
            workspace=folder,
            key=key,
            again=False,
            plan=None,
            sandbox=self._commands.sandbox,
            limits=self._commands.limits,
            fetcher=self._fetcher,
            subagents=self._subagents,
            network=network,
            permits=permits,
            # no variables, because there is no session yet
            state=ThreadState(self._pool, self._subagents, ref, key, folder, {}, Redactor(), keep_none, refuse_values),
        )
        try:
            given = tool.input.model_validate(check.input)
            result = await run_within(check.timeout_s, tool.answer(given, context), grace=GRACE_SECONDS)
        except ValidationError as error:
            raise CheckFailed(tool.explain(error)) from None
        except TimeoutError:
            raise CheckFailed(f"stopped after {check.timeout_s} s") from None
        except Exception:
            log.exception("the tool %s failed in a check", tool.name)
            raise CheckFailed(f"{tool.name} failed unexpectedly; the operator's log has the details") from None
        output = clean(result.text).strip()[:OUTPUT_CHARS]
        if result.failed:
            raise CheckFailed(output[-300:])
        return output
