"""The record of delegation calls: claimed and answered like any tool call, so that the next model call finds them."""

from temporalio import activity

from activities.tools.support.output import bounded, clean
from domain import events as ev
from domain.policy.rules import Rule
from domain.sessions.effects import EffectKind, withheld
from domain.sessions.session import SessionRef
from domain.sessions.step import Effect, ToolOutcome, preview
from store import events, tool_calls
from store.database import Pool
from store.events import to_row

HOLDER = "delegation"  # beginning and settling are two activities of one call, so they share the claim


def over_budget(ref: SessionRef, tool: str) -> dict[str, object]:
    """What a claim is to record where the tree's budget of tool calls is spent."""
    text = "The budget of tool calls that this session shares with its tree is spent. This call was not run."
    return {"spent": text, "refused": [to_row(ref, ev.ToolReturned(tool=tool, state="failed", preview=text))]}


class DelegationRecord:
    def __init__(self, pool: Pool, ref: SessionRef, node: str) -> None:
        self._pool = pool
        self._ref = ref
        self._node = node

    async def claim(self, index: int, tool: str, summary: str, kind: EffectKind | None = None) -> ToolOutcome | None:
        """None: the call is ours to make; else its earlier result."""
        called = ev.ToolCalled(tool=tool, args=summary)
        claim = await tool_calls.claim(
            self._pool,
            self._document(
                index,
                tool=tool,
                effect=Effect.IDEMPOTENT,
                unknown="",
                called=[to_row(self._ref, called)],
                lost=[],
                kind=kind,
                description=summary,
                withheld=withheld(kind, Effect.IDEMPOTENT),
                **over_budget(self._ref, tool),
            ),
        )
        if claim.go:
            return None
        known = _outcome(index, tool, claim.state or "unknown", claim.text or "")
        return known.model_copy(update={"spent": claim.spent})

    async def settle(
        self, index: int, tool: str, state: str, text: str, events: list[ev.Event], rule: Rule | None = None
    ) -> ToolOutcome:
        """Record the result of the call; `rule` is the one that denied it."""
        text, _ = bounded(clean(text), 60_000)
        returned = ev.ToolReturned(tool=tool, state=state, preview=preview(text), rule=rule)
        rows = [to_row(self._ref, event) for event in (*events, returned)]
        await tool_calls.commit(
            self._pool,
            self._document(
                index,
                tool=tool,
                effect=Effect.IDEMPOTENT,
                state=state,
                text=text,
                progress=None,
                plan=None,
                files=[],
                events=rows,
                denied=rule is not None,
                rule=str(rule) if rule else None,
            ),
        )
        return _outcome(index, tool, state, text).model_copy(
            update={"denied": rule is not None, "forbidden": rule is not None}
        )

    async def emit(self, index: int, event: ev.Event) -> None:
        """An event of a call that is still open; its batch is named after the call, so a repeat is written once."""
        await events.append(
            self._pool,
            f"{self._node}/{index}/{event.type}",
            [to_row(self._ref, event)],
            again=activity.info().attempt > 1,
        )

    def _document(self, index: int, **more: object) -> dict[str, object]:
        return {
            "tenant": self._ref.tenant,
            "session_id": self._ref.session_id,
            "node": self._node,
            "index": index,
            "holder": HOLDER,
            "attempt": 1,
            **more,
        }


def _outcome(index: int, tool: str, state: str, text: str) -> ToolOutcome:
    known = state if state in ("ok", "failed", "cancelled") else "unknown"
    return ToolOutcome.model_validate({"index": index, "name": tool, "state": known, "preview": preview(text, 160)})
