"""A model call without its database."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest
from temporalio.exceptions import ApplicationError

from activities.hooks.hook import SessionHook
from activities.hooks.run_hooks import Hooks
from activities.model.call_model import CallModel
from activities.model.models import Models
from domain import wire
from domain.agents.definition import AgentDefinition
from domain.agents.hook import HookPoint
from domain.agents.models import Price, PriceTable, Provider, Providers
from domain.messages import ModelMessage, ModelRequest, ModelResponse, TextBlock
from domain.sessions.session import AgentRef, ModelCall, SessionRef, Usage
from store import database
from store.messages import StepFacts

NOT_REACHED = cast(Any, None)  # arguments that the call needs only after the database has answered


async def _never(*_: object) -> None:
    raise AssertionError("a hook ran without its state")


async def test_hooks_of_the_system_prompt_wait_for_an_unavailable_database() -> None:
    hook = SessionHook(name="instructs", point=HookPoint.AFTER_SYSTEM_MESSAGE, run=_never)
    pool = await database.connect("postgresql://errand@127.0.0.1:1/errand")  # no server listens on this port
    try:
        hooks = Hooks(pool, {hook.name: hook}, NOT_REACHED, NOT_REACHED, NOT_REACHED)
        asking = CallModel(*cast(Any, [pool, *[NOT_REACHED] * 6, hooks]))
        agent = AgentDefinition(name="tester", description="x", prompt="x", hooks=[hook.name])
        call = ModelCall(
            ref=SessionRef(tenant="default", session_id="s", conversation_id="s"),
            agent=AgentRef(owner="*", name="tester", version=1),
            model="m",
            step=1,
            version=1,
            head=None,
            deadline=datetime.now(UTC),
            usage=Usage(),
        )
        with pytest.raises(ApplicationError) as away:
            await asking.ask(call, agent, [], {}, StepFacts(), ModelResponse())
    finally:
        await pool.close()
    assert (away.value.type, away.value.non_retryable) == (wire.DATABASE_AWAY, False)
    assert away.value.next_retry_delay is not None


def test_an_estimate_holds_where_the_cache_is_cheaper_than_input() -> None:
    own = {"m": Price(input=4, output=0, cache_read=0, cache_write=1)}
    providers = Providers(named={"anthropic": Provider(kind="anthropic", key="k")})
    request = ModelRequest(
        model="m", max_tokens=1, system="", messages=[ModelMessage("user", [TextBlock(text="x" * 900)])]
    )
    estimate = Models(providers, PriceTable(models=own, providers=providers)).estimate(request)
    assert estimate.input_usd == pytest.approx(estimate.input_tokens * 4 / 1_000_000)
