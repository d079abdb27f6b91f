"""Runs workflows in the SDK's sandbox. Our pure modules pass through it, and one SDK method is overridden."""

from temporalio.converter import StorageDriverStoreContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

# These modules use neither a clock nor randomness (a test checks that), so all workflows can share one copy. A waiting
# session then needs half as much memory.
PURE = (
    "activity_calls",
    "conversation.apart",
    "conversation.router",
    "conversation.spawning",
    "conversation.starter",
    "session.acceptance",
    "session.context",
    "session.delegation",
    "session.handoff",
    "session.hooks",
    "session.input_requests",
    "session.limits",
    "session.loop",
    "session.remote_calls",
    "session.replies",
    "session.sides",
    "typed_activity",
    "ui",
)

_NO_CONTEXT = StorageDriverStoreContext(target=None)


class Runner(SandboxedWorkflowRunner):
    """Answers two questions of the SDK outside the sandbox.

    Four times for each payload the SDK asks the sandboxed workflow in which context the payload is encoded and stored
    (`get_serialization_context`, `get_external_store_context` of a workflow instance; temporalio 1.35). Entering the
    sandbox for that took a seventh of a worker's time in a profile of short sessions. Only an external storage
    uses the answer, or a codec or converter that depends on the context (`WithSerializationContext`). We have none: our
    codec encrypts alike in every context. A test asserts this for the codec and the storage. Holds for temporalio 1.35:
    with another version, look at these two methods again, and measure whether the override still pays.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = super().create_instance(det)
        instance.get_serialization_context = lambda command_info: None  # type: ignore[method-assign]
        instance.get_external_store_context = lambda command_info: _NO_CONTEXT  # type: ignore[method-assign]
        return instance


def workflow_runner() -> SandboxedWorkflowRunner:
    ours = (f"workflows.{name}" for name in PURE)
    return Runner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules("domain", "pydantic", "pydantic_core", *ours)
    )
