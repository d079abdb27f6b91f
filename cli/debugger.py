"""The debugger of `errand replay --debug`, and the interceptor that starts it at one step."""

import inspect
import os
import pdb
import sys
from types import FrameType
from typing import Any

from temporalio.worker import (
    Interceptor,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import ActivityHandle

from cli.render.output import note
from workflows.replay import loop_above

STOP_NOWHERE = -1  # pdb's value of `stoplineno` after `continue`


class Debugger(pdb.Pdb):
    def stop_in(self, frame: FrameType) -> None:
        """Open a prompt in an outer frame now; `set_trace` would wait until that frame runs its next line."""
        self.reset()
        outer: FrameType | None = frame
        while outer is not None:
            outer.f_trace = self.trace_dispatch
            self.botframe, outer = outer, outer.f_back
        self.interaction(frame, None)
        if self.breaks or self.stoplineno != STOP_NOWHERE:
            sys.settrace(self.trace_dispatch)

    def do_quit(self, arg: str) -> bool | None:
        """End the process: pdb's own exception, raised inside the workflow, would look like a failure of the replay."""
        sys.stdout.flush()
        os._exit(0)

    do_q = do_exit = do_EOF = do_quit


class StepBreakpoint(Interceptor):
    """Starts the debugger in the session's loop when it calls the model in the given step."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.reached = False

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        breakpoint = self

        class Outbound(WorkflowOutboundInterceptor):
            def start_activity(self, input: StartActivityInput) -> "ActivityHandle[Any]":
                breakpoint.activity_started(input, inspect.currentframe())
                return super().start_activity(input)

        class Inbound(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(Outbound(outbound))

        return Inbound

    def activity_started(self, input: StartActivityInput, frame: FrameType | None) -> None:
        if self.reached or input.activity != "call_model" or input.args[0]["step"] != self.step:
            return
        self.reached = True
        note("`line`, `state` and `session` are the loop's variables; n: to the model's reply, c: to the end, q: quit")
        Debugger(skip=["temporalio.*", "asyncio.*", "contextlib"]).stop_in(loop_above(frame))
