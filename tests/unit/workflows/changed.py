"""The workflows after a careless change: the same names, with one more timer at the start."""

import asyncio
import inspect
from typing import Any

from temporalio import workflow

from workflows.registry import WORKFLOWS


def delay(base: Any) -> type:
    """A workflow of the same name and arguments that first waits for a second."""

    async def run(self: Any, start: Any) -> Any:
        await asyncio.sleep(1)
        return await base.run(self, start)

    def __init__(self: Any, start: Any) -> None:
        base.__init__(self, start)

    name = f"Changed{base.__name__}"
    run.__annotations__ = inspect.get_annotations(base.run)
    run.__qualname__ = f"{name}.run"  # as a method has it: the SDK checks that
    body: dict[str, Any] = {"__module__": __name__, "run": workflow.run(run)}
    if len(inspect.signature(base).parameters) == 1:
        __init__.__annotations__ = inspect.get_annotations(base.__init__)
        __init__.__qualname__ = f"{name}.__init__"
        body["__init__"] = workflow.init(__init__)
    return workflow.defn(name=base.__name__)(type(name, (base,), body))


CHANGED: list[type] = [delay(one) for one in WORKFLOWS]
globals().update({one.__name__: one for one in CHANGED})  # where the sandbox of a replay looks for them
