"""What a worker keeps between the calls of a step, so that the next one need not ask the store or wait for it."""

from dataclasses import dataclass, field

from activities.runtime.deferred_results import DeferredResults
from activities.runtime.fresh_calls import FreshCalls
from activities.runtime.fresh_steps import FreshSteps


@dataclass(frozen=True)
class StepMemory:
    deferred: DeferredResults
    calls: FreshCalls = field(default_factory=FreshCalls)
    steps: FreshSteps = field(default_factory=FreshSteps)
