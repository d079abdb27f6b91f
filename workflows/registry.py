"""Which workflows there are and how they are run; the same for workers and for a replay."""

from temporalio.converter import StorageDriverStoreContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from workflows.conversation.workflow import Conversation
from workflows.notification_delivery import Delivery
from workflows.session.workflow import Session
from workflows.sweeper import Sweeper

WORKFLOWS = [Session, Conversation, Delivery, Sweeper]

_NOWHERE = StorageDriverStoreContext(target=None)


class Runner(SandboxedWorkflowRunner):
    """The SDK asks the sandboxed workflow, four times for each payload, in which context it is encoded and stored. Only
    a codec or an external storage would want to know, and we have neither (a test says so): so the answer is known
    without entering the sandbox, which took a seventh of a worker's time."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = super().create_instance(det)
        instance.get_serialization_context = lambda command_info: None  # type: ignore[method-assign]
        instance.get_external_store_context = lambda command_info: _NOWHERE  # type: ignore[method-assign]
        return instance


# they know neither clock nor chance (a test reads them), so each workflow need not have its own copy of them: that
# takes a waiting session half of its memory
PURE = (
    "session.acceptance",
    "appearance",
    "session.input_requests",
    "attributes",
    "session.limits",
    "session.delegation",
    "session.loop",
    "conversation.router",
    "session.context",
    "conversation.starter",
    "conversation.spawning",
    "activity_calls",
    "ui",
)


def workflow_runner() -> SandboxedWorkflowRunner:
    """The workflow sandbox stays on; what is pure passes through it, decided here once."""
    ours = (f"workflows.{name}" for name in PURE)
    return Runner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules("domain", "pydantic", "pydantic_core", *ours)
    )
