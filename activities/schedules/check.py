"""The check of a schedule: a sandboxed command that decides whether a model is called at all."""

from dataclasses import dataclass

from activities.runtime.definitions import Definitions
from activities.runtime.workspaces import Workspaces
from activities.sandbox import Commands
from activities.tools.support.output import clean
from domain.schedules.schedule import Check, RunStatus, Schedule
from store import workspaces
from store.database import Pool

NOTHING_TO_DO = 3  # the exit code
OUTPUT_CHARS = 20_000


@dataclass(frozen=True)
class CheckResult:
    """The output for the agent, or why the run ends here."""

    output: str = ""
    ends: RunStatus | None = None
    reason: str = ""


class Checks:
    def __init__(self, pool: Pool, definitions: Definitions, workspaces: Workspaces, commands: Commands) -> None:
        self._pool = pool
        self._definitions = definitions
        self._workspaces = workspaces
        self._commands = commands

    async def run(self, schedule: Schedule, check: Check) -> CheckResult:
        """It is the owner's own command, so the agent's rules do not bind it; the sandbox and the task's rules do."""
        session = schedule.session
        agent = await self._definitions.load(session.agent_ref)
        sandbox = session.spec.get("config", {}).get("sandbox")
        version, _ = await workspaces.get(self._pool, schedule.tenant, schedule.conversation_id)
        folder = await self._workspaces.ready(schedule.tenant, schedule.conversation_id, version)
        result = await self._commands.sandbox.run(
            check.run,
            workspace=folder,
            network=self._commands.network(agent, sandbox, session.rules),
            timeout_s=check.timeout_s,
            limits=self._commands.limits,
        )
        output = clean(result.output).strip()[:OUTPUT_CHARS]
        if result.exit_code == NOTHING_TO_DO or (result.exit_code == 0 and not output):
            return CheckResult(ends=RunStatus.SKIPPED, reason="the check found nothing to do")
        if result.exit_code == 0:
            return CheckResult(output)
        ended = f"exit code {result.exit_code}" if not result.timed_out else f"stopped after {check.timeout_s} s"
        why = result.refusal or result.stopped or f"{ended}: {output[-300:]}"
        return CheckResult(ends=RunStatus.FAILED, reason=f"the check failed: {why}")
