"""check_acceptance: runs the commands of a task's criteria in the sandbox, and lets the model judge its texts and
constraints."""

from dataclasses import dataclass
from typing import Any

from errand.models import Verdict
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.attempt import call_attempt, run_of, send_heartbeats
from activities.environments import Environments, open_network
from activities.model.models import Models
from activities.model.reply import Contexts
from activities.sandbox import NONE, Commands
from activities.tools.tool import clean
from activities.workspaces import Workspaces
from domain import wire
from domain.events import AcceptanceChecked, ArtifactSaved, EventRow
from domain.ids import derive_id
from domain.messages import (
    ASSISTANT,
    TOOL_RESULTS,
    USER,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    Node,
    TextBlock,
    text_of,
)
from domain.policy.rules import Rule
from domain.redaction import Redactor
from domain.sessions import acceptance as rules
from domain.sessions.acceptance import (
    AcceptanceRound,
    AcceptanceVerdict,
    CheckAcceptance,
    CommandCriterion,
    criterion_text,
)
from domain.sessions.session import CallState, Effect, EffectKind, Usage, preview
from domain.sessions.writes import (
    AcceptanceRecord,
    BudgetUse,
    NewFile,
    NewMessage,
    ToolCallKey,
    ToolClaim,
    ToolCommit,
)
from domain.task import parts_of
from store import files, sessions, tool_calls, workspaces
from store.agents import load_view
from store.database import Pool

WHY = 500  # characters of a reason
MOST_LOG = 2_000_000  # bytes of what the commands of a round printed, from its end
EVIDENCE = 20_000  # characters of the newest tool results that the judge is shown
REPLY_TOKENS = 4_096
ROUNDS = 3  # checks before the session fails
TOKENS_EACH = 100  # for each verdict besides
NO_VERDICT = "The judge gave no verdict on this."


@dataclass
class AcceptanceChecks:
    _pool: Pool
    _models: Models
    _contexts: Contexts
    _workspaces: Workspaces
    _commands: Commands
    _environments: Environments

    @activity.defn(name="check_acceptance")
    async def check_acceptance(self, check: CheckAcceptance) -> AcceptanceVerdict:
        async with send_heartbeats():
            session = await sessions.load(self._pool, check.ref)
            known = await sessions.get_acceptance(self._pool, check.ref.tenant, check.ref.session_id)
            if known is not None and known.round == check.round:  # it was written, but the result was lost
                return self._verdict(check, known.verdicts, session.usage)
            criteria = session.task.acceptance_criteria
            config, log = session.task.config, list[str]()
            verdicts = {
                place: await self._command(check, place, one, session.rules, config.environment, log)
                for place, one in enumerate(criteria)
                if isinstance(one, CommandCriterion)
            }
            if log and config.has_tree:
                await self._save_log(check, "\n".join(log))
            texts = {place: criterion_text(one) for place, one in enumerate(criteria) if place not in verdicts}
            constraints = session.task.constraints
            judged: list[Verdict] = []
            usage = Usage()
            if texts or constraints:
                judged, usage = await self._judge(check, list(texts.values()), constraints)
            verdicts |= dict(zip(texts, judged, strict=False))  # those on the constraints are the rest
            ordered = [*(verdicts[place] for place in sorted(verdicts)), *judged[len(texts) :]]
            return await self._record(check, ordered, usage)

    async def _command(
        self,
        check: CheckAcceptance,
        place: int,
        criterion: CommandCriterion,
        bounds: list[list[Rule]],
        named: str | None,
        log: list[str],
    ) -> Verdict:
        """Run a command. It is the caller's own, so the agent's rules do not apply; the sandbox and the task's rules
        do."""
        claim = _claim(check, place, criterion)
        known = await tool_calls.claim(self._pool, claim)
        if not known.go:
            return self._recorded(criterion, known.state, known.text or "", log)
        agent = await load_view(self._pool, check.agent)
        environment = await self._environments.open(check.ref, named) if named is not None else None
        network = open_network(self._commands, agent, check.sandbox, bounds, environment)
        version, _ = await workspaces.get(self._pool, check.ref.tenant, check.workspace_id)
        variables = environment.variables if environment is not None else NONE
        with self._workspaces.use(check.ref.tenant, check.workspace_id):
            folder = await self._workspaces.ready(check.ref.tenant, check.workspace_id, version)
            result = await self._commands.run(criterion.run, folder, criterion.timeout_s, network, variables=variables)
        hidden = environment.hidden if environment is not None else []
        output = Redactor(hidden).text(clean(result.output)).strip()
        how = f"exit code {result.exit_code}" if not result.timed_out else f"stopped after {criterion.timeout_s} s"
        how = f"stopped: {result.stopped}" if result.stopped else how
        why = result.refusal or f"{how}: {output[-WHY:] or '(no output)'}"
        log.append(f"$ {criterion.run}\n{output}\n[{result.refusal or how}]\n")
        passed = result.exit_code == 0
        key = {name: getattr(claim, name) for name in (*ToolCallKey.model_fields, "holder", "attempt")}
        ended = ToolCommit(**key, state=CallState.OK if passed else CallState.FAILED, result=why)
        if not await tool_calls.commit(self._pool, ended):
            raise ApplicationError("A newer attempt checks this.", type=wire.SUPERSEDED)
        return Verdict(kind="command", criterion=criterion_text(criterion), passed=passed, why=why)

    def _recorded(self, criterion: CommandCriterion, state: CallState | None, why: str, log: list[str]) -> Verdict:
        """What an earlier attempt recorded of a command, which does not run again for the same answer."""
        if state not in (CallState.OK, CallState.FAILED):
            raise ApplicationError("A newer attempt checks this.", type=wire.SUPERSEDED)
        log.append(f"$ {criterion.run}\n[{why}]\n")
        passed = state is CallState.OK
        return Verdict(kind="command", criterion=criterion_text(criterion), passed=passed, why=why)

    async def _save_log(self, check: CheckAcceptance, log: str) -> None:
        """All that the commands printed, as an artifact: a verdict has the end of it."""
        ref, content = check.ref, log.encode()[-MOST_LOG:]
        [digest] = await files.put_blobs(self._pool, ref.tenant, [content])
        new = NewFile(
            id=derive_id(ref.session_id, "checks", check.round),
            sha256=digest,
            size=len(content),
            name="checks.log",
            media_type="text/plain",
            type="log",
            description=f"What the commands of the criteria printed in round {check.round}.",
        )
        saved = ArtifactSaved(name=new.name, artifact_type=new.type, file_id=new.id, size=new.size)
        await files.save_artifacts(self._pool, ref, run_of(ref), [new], [EventRow.of(ref, saved)], new.id)

    async def _judge(
        self, check: CheckAcceptance, criteria: list[str], constraints: list[str]
    ) -> tuple[list[Verdict], Usage]:
        """The verdicts on the criteria, then those on the constraints."""
        done = ""
        if constraints:  # the record of effects of the session and its subagents
            ledger = await tool_calls.get_ledger(self._pool, check.ref.tenant, check.ref.session_id)
            done = rules.list_effects(ledger.items) + ("" if ledger.complete else "\n- and more")
        nodes = await self._contexts.load(check.ref, "main", check.head)
        request = ModelRequest(
            model=check.model,
            max_tokens=REPLY_TOKENS + TOKENS_EACH * (len(criteria) + len(constraints)),
            system=rules.JUDGE,
            messages=[ModelMessage("user", [TextBlock(text=_case(check, nodes, criteria, constraints, done))])],
            tools=[rules.VERDICT_TOOL],
            settings=ModelSettings(tool_choice=rules.VERDICT_TOOL.name),
            cached=False,
        )
        turn = ModelResponse()
        try:
            await self._models.ask(request, turn, on_text=lambda _: None, on_thinking=lambda _: None)
        except Exception as error:
            failure = self._models.classify(error, check.model)
            raise ApplicationError(failure.message, type=failure.type, non_retryable=not failure.retryable) from error
        said = turn.calls[0].arguments.get("verdicts") if turn.calls else None
        verdicts = [_verdict("text", text, said, place) for place, text in enumerate(criteria)]
        for place, text in enumerate(constraints, start=len(criteria)):
            verdicts.append(_verdict("constraint", text, said, place))
        return verdicts, turn.usage

    async def _record(self, check: CheckAcceptance, verdicts: list[Verdict], usage: Usage) -> AcceptanceVerdict:
        verdict = self._verdict(check, verdicts, check.usage.plus(usage))
        message = None
        if verdict.message:
            message = NewMessage(id=verdict.message, author="errand", parts=parts_of(rules.findings(verdicts)))
        round = AcceptanceRound(round=check.round, passed=verdict.passed, verdicts=verdicts)
        event = AcceptanceChecked(**round.model_dump())
        await sessions.record_acceptance(
            self._pool,
            AcceptanceRecord(
                tenant=check.ref.tenant,
                session_id=check.ref.session_id,
                run=run_of(check.ref),
                round=check.round,
                version=check.version,
                acceptance=round,
                usage=check.usage.plus(usage),
                used=BudgetUse(tokens=usage.tokens, cost_usd=usage.cost_usd),
                message=message,
                events=[EventRow.of(check.ref, event)],
            ),
        )
        return verdict

    def _verdict(self, check: CheckAcceptance, verdicts: list[Verdict], total: Usage) -> AcceptanceVerdict:
        failed = [one for one in verdicts if not one.passed]
        violated = [one for one in failed if one.kind == "constraint" and one.why != NO_VERDICT]
        again = bool(failed) and not violated and check.round < ROUNDS
        return AcceptanceVerdict(
            passed=not failed,
            message=derive_id(check.ref.session_id, "acceptance", check.round) if again else None,
            usage=total.minus(check.usage),
            violated=bool(violated),
            preview=preview("; ".join(f"{one.criterion}: {one.why}" for one in violated or failed)),
        )


def _claim(check: CheckAcceptance, place: int, criterion: CommandCriterion) -> ToolClaim:
    """The command as a call of the ledger: the same if it runs again after a crash, another for another answer."""
    by = call_attempt()
    return ToolClaim(
        tenant=check.ref.tenant,
        session_id=check.ref.session_id,
        run=run_of(check.ref),
        node=f"{check.ref.session_id}/acceptance/{check.head}",
        call_index=place,
        tool="acceptance",
        effect=Effect.IDEMPOTENT,
        holder=by.call,
        attempt=by.attempt,
        asks=True,
        kind=EffectKind.COMMAND,
        actor="errand",
        description=f"$ {preview(criterion.run, 120)}",
        command=criterion.run,
    )


def _verdict(kind: str, criterion: str, verdicts: Any, place: int) -> Verdict:
    """The judge's verdict on one criterion or constraint. A missing or malformed verdict counts as not met, but
    only the judge can say that a constraint was violated."""
    one = verdicts[place] if isinstance(verdicts, list) and place < len(verdicts) else None
    if not isinstance(one, dict):
        one = {"why": NO_VERDICT}
    why = clean(str(one.get("why", "")))[:WHY]
    return Verdict(kind=kind, criterion=criterion, passed=one.get("met") is True, why=why)


def _case(check: CheckAcceptance, nodes: list[Node], criteria: list[str], constraints: list[str], effects: str) -> str:
    own = [node for node in nodes if node.session_id == check.ref.session_id]
    task = next((text_of(node) for node in own if node.kind == USER), "")
    answer = next((text for node in reversed(own) if node.kind == ASSISTANT and (text := text_of(node))), "")
    evidence = "\n".join(text_of(node) for node in own if node.kind == TOOL_RESULTS)
    if (cut := len(evidence) - EVIDENCE) > 0:
        evidence = f"[{cut} earlier characters are not shown]\n{evidence[cut:]}"
    return rules.case(task, evidence, answer, criteria, constraints, effects)
