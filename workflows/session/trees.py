"""The repository of a session: made before the first step, its changes kept after the last one."""

from temporalio import workflow
from temporalio.exceptions import ActivityError

from domain.sessions.session import Reason, TreeRequest
from workflows import activity_calls
from workflows.session.context import Ending, SessionContext, cause


async def prepare_tree(session: SessionContext) -> Ending | None:
    """The ending if there is no tree: nothing has been asked of a model yet."""
    try:
        await session.wait(activity_calls.prepare_tree(_request(session), session.deadline))
    except ActivityError as error:
        session.check()
        _, message = cause(error)
        return Ending(Reason.ERROR, "repository", message)
    return None


async def collect_changes(session: SessionContext) -> None:
    """A failure does not keep the session from ending: the changes are still in the workspace."""
    try:
        await activity_calls.collect_changes(_request(session))
    except ActivityError as error:
        workflow.logger.warning("the changes were not kept as a patch: %s", cause(error)[1])


def _request(session: SessionContext) -> TreeRequest:
    return TreeRequest(ref=session.start.ref, workspace_id=session.start.workspace_id)
