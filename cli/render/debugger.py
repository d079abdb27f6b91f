"""The debugger in which `errand replay --debug` stops, and what watches for the step."""

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

CONTINUE = -1  # pdb's own mark for: stop nowhere


class Debugger(pdb.Pdb):
    def stop_in(self, frame: FrameType) -> None:
        """Prompt in a frame further out, at once; `set_trace` would only do so when that frame's next line runs."""
        self.reset()
        outer: FrameType | None = frame
        while outer is not None:
            outer.f_trace = self.trace_dispatch
            self.botframe, outer = outer, outer.f_back
        self.interaction(frame, None)
        if self.breaks or self.stoplineno != CONTINUE:
            sys.settrace(self.trace_dispatch)

    def do_quit(self, arg: str) -> bool | None:
        """End the command: an exception raised into the workflow would only look like its own."""
        sys.stdout.flush()
        os._exit(0)

    do_q = do_exit = do_EOF = do_quit


class Watch(Interceptor):
    """Stops in the loop's frame as it asks the model in one step."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.reached = False

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        watch = self

        class Outbound(WorkflowOutboundInterceptor):
            def start_activity(self, input: StartActivityInput) -> "ActivityHandle[Any]":
                watch.see(input, inspect.currentframe())
                return super().start_activity(input)

        class Inbound(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(Outbound(outbound))

        return Inbound

    def see(self, input: StartActivityInput, frame: FrameType | None) -> None:
        if self.reached or input.activity != "call_model" or input.args[0]["step"] != self.step:
            return
        self.reached = True
        note(
            "`line`, `state` and `session` are what the loop knows; n: on to the model's reply, c: to the end, q: quit"
        )
        Debugger(skip=["temporalio.*", "asyncio.*", "contextlib"]).stop_in(loop_above(frame))
