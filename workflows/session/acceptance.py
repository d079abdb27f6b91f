"""Acceptance: a session that reports that it is done is checked against its criteria, and sent back if they fail. A
violated constraint ends it."""

from temporalio import workflow
from temporalio.exceptions import ActivityError

from domain.sessions.acceptance import CheckAcceptance
from domain.sessions.session import Reason
from domain.sessions.session_state import Line
from workflows import activity_calls
from workflows.session.context import Ending, SessionContext, cause


async def met(session: SessionContext, line: Line) -> bool:
    """Whether the session may complete. If not, its inbox lists what is missing. The number of rounds is limited."""
    state = session.state
    state.acceptance_round += 1
    check = CheckAcceptance(
        ref=session.start.ref,
        agent=line.agent,
        model=line.model,
        head=line.head,
        step=line.step,
        round=state.acceptance_round,
        version=session.next_version(),
        usage=state.usage,
        workspace_id=session.start.workspace_id,
        sandbox=session.start.sandbox,
    )
    try:
        verdict = await session.wait(activity_calls.check_acceptance(check, session.deadline))
    except ActivityError as error:
        session.check()
        raise Ending(Reason.ERROR, *cause(error)) from error
    state.usage = state.usage.plus(verdict.usage)
    session.check()
    if verdict.passed:
        return True
    if verdict.violated:
        raise Ending(Reason.CONSTRAINT_VIOLATED, "constraint_violated", verdict.preview)
    if verdict.message is None:
        raise Ending(Reason.ACCEPTANCE_FAILED, "acceptance_failed", verdict.preview)
    workflow.logger.info("sent back: %s", verdict.preview)
    state.inbox.append(verdict.message)
    return False
