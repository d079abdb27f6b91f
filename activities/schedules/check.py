"""The check of a schedule: a sandboxed command or a tool decides whether a model is called at all."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from activities.definitions import Definitions
from activities.delegation.subagents import Subagents
from activities.egress import Fetcher
from activities.sandbox import Commands, NetworkPolicy
from activities.thread_state import ThreadState
from activities.tools.rules import judge_call
from activities.tools.run_tool import GRACE_SECONDS
from activities.tools.tool import Tool, ToolContext, clean
from activities.user_code import within
from activities.workspaces import Workspaces
from domain.agents.definition import AgentDefinition
from domain.policy.rules import Action, verdict
from domain.redaction import Redactor
from domain.schedules import Check, RunStatus, Schedule
from domain.sessions.session import SessionRef
from domain.sessions.step import Effect
from store import workspaces
from store.database import Pool

NOTHING_TO_DO = 3  # exit code of a check
OUTPUT_CHARS = 20_000
NOTHING = "the check found nothing to do"

log = logging.getLogger("errand.worker")


@dataclass(frozen=True)
class CheckResult:
    """The output for the agent, or the reason to skip the run."""

    output: str = ""
    ends: RunStatus | None = None
    reason: str = ""


class Checks:
    def __init__(
        self,
        pool: Pool,
        definitions: Definitions,
        workspaces: Workspaces,
        commands: Commands,
        tools: Mapping[str, Tool],
        fetcher: Fetcher,
        subagents: Subagents,
    ) -> None:
        self._pool = pool
        self._tools = tools
        self._fetcher = fetcher
        self._subagents = subagents
        self._definitions = definitions
        self._workspaces = workspaces
        self._commands = commands

    async def run(self, schedule: Schedule, check: Check) -> CheckResult:
        """Run the command. It is the owner's own, so the agent's rules do not apply; the sandbox and the task's rules
        do."""
        session = schedule.session
        agent = await self._definitions.load(session.agent_ref)
        sandbox = session.task.config.sandbox
        version, _ = await workspaces.get(self._pool, schedule.tenant, schedule.conversation_id)
        folder = await self._workspaces.ready(schedule.tenant, schedule.conversation_id, version)
        network = self._commands.network(agent, sandbox, session.rules)
        if check.run is None:
            return await self._tool(schedule, check, agent, folder, network)
        result = await self._commands.sandbox.run(
            check.run,
            workspace=folder,
            network=network,
            timeout_s=check.timeout_s,
            limits=self._commands.limits,
        )
        output = clean(result.output).strip()[:OUTPUT_CHARS]
        if result.exit_code == NOTHING_TO_DO or (result.exit_code == 0 and not output):
            return CheckResult(ends=RunStatus.SKIPPED, reason=NOTHING)
        if result.exit_code == 0:
            return CheckResult(output)
        ended = f"exit code {result.exit_code}" if not result.timed_out else f"stopped after {check.timeout_s} s"
        why = result.refusal or result.stopped or f"{ended}: {output[-300:]}"
        return _failed(why)

    async def _tool(
        self, schedule: Schedule, check: Check, agent: AgentDefinition, folder: Path, network: NetworkPolicy | None
    ) -> CheckResult:
        """Run the tool. It is the agent's, so its rules apply. It may only read, because nothing fences a check."""
        tool = self._tools.get(check.tool or "")
        if tool is None or tool.name not in agent.tools or tool.effect is not Effect.READ or tool.activity is not None:
            return _failed(f"{check.tool} is not a read-only tool of the agent")
        layers = [agent.permissions, *schedule.session.rules]
        if (found := judge_call(tool, check.input, layers)).action is not Action.ALLOW:
            return _failed(f"the rules do not allow it: {found.because}")
        ref = SessionRef(
            tenant=schedule.tenant, session_id=schedule.conversation_id, conversation_id=schedule.conversation_id
        )

        key = f"check:{schedule.id}"

        async def kept() -> None:
            """Refuse: a check must not change anything."""

        async def stored(_: object) -> list[str]:
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
            state=ThreadState(self._pool, self._subagents, ref, key, folder, {}, Redactor(), kept, stored),
        )
        try:
            given = tool.input.model_validate(check.input)
            result = await within(check.timeout_s, tool.run(given, context), grace=GRACE_SECONDS)
        except ValidationError as error:
            return _failed(tool.explain(error))
        except TimeoutError:
            return _failed(f"stopped after {check.timeout_s} s")
        except Exception:
            log.exception("the tool %s failed in a check", tool.name)
            return _failed(f"{tool.name} failed unexpectedly; the operator's log has the details")
        output = clean(result.text).strip()[:OUTPUT_CHARS]
        if result.failed:
            return _failed(output[-300:])
        return CheckResult(output) if output else CheckResult(ends=RunStatus.SKIPPED, reason=NOTHING)


def _failed(why: str) -> CheckResult:
    return CheckResult(ends=RunStatus.FAILED, reason=f"the check failed: {why}")
