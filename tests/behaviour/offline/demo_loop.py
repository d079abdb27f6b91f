"""A small agent loop with the decisions of the offline model and the real tools."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack, cast

from pydantic import BaseModel

from activities.egress import FetchError
from activities.handlers.registry import HANDLERS
from activities.sandbox import CommandOptions, SandboxResult
from activities.tools.registry import TOOLS
from activities.tools.tool import BEGIN_DELEGATIONS, ToolContext
from agents.loader import check_agents
from agents.problems import Catalogue
from domain.conversations.mailbox import Outcome
from domain.conversations.subagent_texts import (
    describe_gathered,
    describe_launch,
    result,
    unknown_subagent,
)
from domain.plan import Plan, is_replanned
from domain.policy.rules import tools_of
from domain.sessions.session import Reason, SessionRef, Status
from offline.scripts import answer
from offline.transcript import Transcript
from settings import ROOT

AGENTS = check_agents(ROOT / "agents", Catalogue(TOOLS, HANDLERS)).agents
REF = SessionRef(tenant="t", session_id="s", conversation_id="s")


class LocalCommands:
    """Runs commands in the workspace without a sandbox, which has its own tests."""

    name = "local"

    async def run(self, command: str, **options: Unpack[CommandOptions]) -> SandboxResult:
        pipe, both, place = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT, options["workspace"]
        # Python would not notice an edit within the same second that keeps the length
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        ran = await asyncio.create_subprocess_shell(command, cwd=place, stdout=pipe, stderr=both, env=env)
        output, _ = await ran.communicate()
        return SandboxResult(ran.returncode, output.decode(), self.name)


class NoCommands(LocalCommands):
    async def run(self, command: str, **options: Any) -> SandboxResult:
        return SandboxResult(None, "", "none", refusal="Nothing was run: there is no sandbox. Install bubblewrap.")


class NoNetwork:
    async def get(self, url: str, permitted: Any = None) -> Any:
        raise FetchError(f"{url} cannot be reached.")


class Children:
    """Subagents in the same loop: they start in parallel, and their outcomes have the texts of the real tools."""

    def __init__(self, agent: str, workspace: Path, sandbox: Any, failing: Callable[[str], bool]) -> None:
        self._agent, self._workspace, self._sandbox, self._failing = agent, workspace, sandbox, failing
        self._running: dict[str, asyncio.Task[Outcome]] = {}

    async def call(self, tool: str, given: dict[str, Any]) -> tuple[str, bool]:
        if tool == "gather":
            outcomes = await asyncio.gather(*(self._running[child] for child in given["task_ids"]))
            return describe_gathered([result(outcome, "api_error") for outcome in outcomes], []), False
        agent = given["agent"]
        if not AGENTS[self._agent].subagent(agent):
            return unknown_subagent(agent, []), True
        child = f"child-{len(self._running) + 1}"
        self._running[child] = asyncio.create_task(self._work(child, agent, given["prompt"]))
        if tool == "async_task":
            return describe_launch(child, agent, given["description"]), False
        outcome = await self._running[child]
        return result(outcome, "api_error"), outcome.failed

    async def _work(self, child: str, agent: str, prompt: str) -> Outcome:
        if self._failing(child):
            error = "The model cannot be reached."
            return Outcome(session_id=child, name=agent, status=Status.FAILED, reason=Reason.ERROR, error=error)
        offered = tools_of(TOOLS, AGENTS[agent].tools, [], delegates=False, subagent=True)
        without = tuple(tool for tool in TOOLS if tool not in offered)
        done = await work(agent, prompt, self._workspace, self._sandbox, without)
        return Outcome(session_id=child, name=agent, status=Status.COMPLETED, output=done.final)


@dataclass
class Run:
    final: str = ""
    plans: list[Plan] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    artifacts: dict[str, str] = field(default_factory=dict)
    progress: list[str] = field(default_factory=list)

    @property
    def replans(self) -> int:
        return sum(is_replanned(old, new) for old, new in zip(self.plans, self.plans[1:], strict=False))


async def work(
    agent: str,
    request: str,
    workspace: Path,
    sandbox: Any = None,
    without: tuple[str, ...] = (),
    failing: Callable[[str], bool] = lambda child: False,
) -> Run:
    """The smallest agent loop: call the model, run the tools, call the model again."""
    children = Children(agent, workspace, sandbox, failing)
    run = Run()
    own = tools_of(TOOLS, AGENTS[agent].tools, [], delegates=bool(AGENTS[agent].subagents))
    offered = [name for name in own if name not in without]
    messages: list[Any] = [{"role": "user", "content": request}]
    for step in range(40):
        body = {
            "model": "m",
            "system": f'You are the agent "{agent}".\n{AGENTS[agent].prompt}',
            "tools": [{"name": name} for name in offered],
            "messages": messages,
        }
        reply = answer(Transcript.of(body))
        assert reply.delay > 0
        if not reply.calls:
            run.final = reply.text
            assert not run.plans or all(step.status in ("done", "skipped") for step in run.plans[-1].steps)
            return run
        assert {call.name for call in reply.calls} <= set(offered)
        ids = [f"toolu_{step}_{index}" for index in range(len(reply.calls))]
        results = [await _call(run, children, call.name, call.input, workspace, sandbox) for call in reply.calls]
        uses = [
            {"type": "tool_use", "id": i, "name": c.name, "input": c.input}
            for i, c in zip(ids, reply.calls, strict=True)
        ]
        answers = [{"type": "tool_result", "tool_use_id": i, **r} for i, r in zip(ids, results, strict=True)]
        messages += [{"role": "assistant", "content": uses}, {"role": "user", "content": answers}]
    raise AssertionError("the demo does not end")


async def _call(
    run: Run, children: Children, name: str, given: dict[str, Any], workspace: Path, sandbox: Any
) -> dict[str, Any]:
    tool = TOOLS[name]
    if tool.activity == BEGIN_DELEGATIONS:
        tool.input.model_validate(given)
        run.calls.append(name)
        text, failed = await children.call(name, given)
        return {"content": [{"type": "text", "text": text}], "is_error": failed}
    context = ToolContext(
        ref=REF,
        agent="demo",
        workspace=workspace,
        key="k",
        again=False,
        plan=run.plans[-1] if run.plans else None,
        sandbox=sandbox or LocalCommands(),
        fetcher=cast(Any, NoNetwork()),
        network=None,
        subagents=cast(Any, None),
        state=cast(Any, None),
    )
    arguments: BaseModel = tool.input.model_validate(given)
    result = await tool.run(arguments, context)
    run.calls.append(name)
    if result.plan:
        run.plans.append(result.plan)
        run.reasons += [given["reason"]] if "reason" in given else []
    run.progress += [result.progress] if result.progress else []
    run.artifacts.update({artifact.name: artifact.content.decode() for artifact in result.artifacts})
    return {"content": [{"type": "text", "text": result.text}], "is_error": result.failed}
