"""Runs workflows: in a worker without the SDK's sandbox, in a replay inside it."""

from temporalio.converter import StorageDriverStoreContext
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from workflows.payload_visits import visit_payloads_once

# These modules use neither a clock nor randomness (a test checks that), so replays need not import them again for each
# run: the sandbox has only the modules that define the workflows.
PURE = (
    "activity_calls",
    "conversation.apart",
    "conversation.router",
    "conversation.spawning",
    "conversation.starter",
    "history",
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


class Runner(UnsandboxedWorkflowRunner):
    """The runner of a worker.

    The sandbox imports the module of a workflow again for each run, which takes 2 to 3 ms and 75 kB, and is entered for
    every activation. It guards against code that reads a clock or uses randomness. All such code here is ours: users
    write tools, handlers and hooks, which run as activities. So the check is made before a release instead: every
    recorded history is replayed inside the sandbox (`checking_runner`), and a test looks at the imports and calls of
    every module that a workflow uses.
    """

    def __init__(self) -> None:
        super().__init__()
        visit_payloads_once()

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return without_contexts(super().create_instance(det))


def without_contexts(instance: WorkflowInstance) -> WorkflowInstance:
    """Answer two questions of the SDK at once.

    Four times for each payload it asks the workflow in which context the payload is encoded and stored
    (`get_serialization_context`, `get_external_store_context`; temporalio 1.35). Only an external storage uses the
    answer, or a codec or converter that depends on the context (`WithSerializationContext`). We have none: our codec
    encrypts alike in every context. A test asserts this for the codec and the storage. With another version of the SDK,
    look at these two methods again, and measure whether the override still pays.
    """
    instance.get_serialization_context = lambda command_info: None  # type: ignore[method-assign]
    instance.get_external_store_context = lambda command_info: _NO_CONTEXT  # type: ignore[method-assign]
    return instance


def checking_runner() -> SandboxedWorkflowRunner:
    """The runner of replays: code of a workflow that is not deterministic raises where it is called."""
    ours = (f"workflows.{name}" for name in PURE)
    return SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules("domain", "pydantic", "pydantic_core", *ours)
    )
