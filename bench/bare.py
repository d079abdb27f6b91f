"""The bare loop: a workflow of trivial activities. It shows what Temporal itself costs per step."""

from datetime import timedelta

from temporalio import workflow

QUEUE = "bench-bare"
MODEL = "bare_model"  # answers without delay
MODEL_CALL = "bare_model_call"  # makes the same request as our step, and stores nothing
LOOKING_CALL = "bare_looking_call"  # the same for the loop of `bench.peers`
SPEAKING_CALL = "bare_speaking_call"  # the same for a long reply that is streamed piece by piece
TOOL = "bare_tool"

IDLE = "BareIdle"

_PATIENCE = timedelta(seconds=60)


@workflow.defn(name="BareLoop")
class BareLoop:
    @workflow.run
    async def run(self, steps: int, model: str) -> int:
        """`steps` times model and tool, then the last model call, passing only a short text."""
        for number in range(steps):
            await workflow.execute_activity(model, f"step {number} of {steps}", start_to_close_timeout=_PATIENCE)
            await workflow.execute_activity(TOOL, "short", start_to_close_timeout=_PATIENCE)
        await workflow.execute_activity(model, f"step {steps} of {steps}", start_to_close_timeout=_PATIENCE)
        return steps


@workflow.defn(name="BareLoopUnsandboxed", sandboxed=False)
class BareLoopUnsandboxed:
    @workflow.run
    async def run(self, steps: int, model: str) -> int:
        return await BareLoop().run(steps, model)


@workflow.defn(name=IDLE)
class BareIdle:
    """A workflow that only waits: the least that a workflow in the worker's memory costs."""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.query
    def awake(self) -> bool:
        return True
