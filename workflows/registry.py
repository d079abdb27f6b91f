"""Which workflows there are and how they are run; the same for workers and for a replay."""

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from workflows.conversation import Conversation
from workflows.delivery import Delivery
from workflows.session import Session
from workflows.sweeper import Sweeper

WORKFLOWS = [Session, Conversation, Delivery, Sweeper]


def workflow_runner() -> SandboxedWorkflowRunner:
    """The workflow sandbox stays on; our pure types and pydantic pass through it, decided here once."""
    return SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules(
            "domain", "pydantic", "pydantic_core", "workflows.attributes", "workflows.steps", "workflows.story"
        )
    )
