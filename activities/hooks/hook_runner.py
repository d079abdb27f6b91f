"""Run one hook within its time limit, and report a failure."""

from temporalio import activity

from activities.hooks.hook import SessionHook
from activities.thread_state import ThreadState
from activities.tools.tool import clean
from activities.user_code import apart, at_home, hidden_in_logs, within
from domain.agents.hook import HookPoint, HookReply, Moment
from domain.events import EventRow, HookFailed
from domain.sessions.session import SessionRef
from store import events
from store.database import Pool


class HookError(Exception):
    """A hook failed. The text says how, and contains none of the hook's input."""


async def reply_of(hook: SessionHook, moment: Moment, state: ThreadState, most_s: float | None = None) -> HookReply:
    """The reply of a hook, without secrets; `most_s`: the remaining time, if that is less than the hook's own limit."""
    seconds = hook.timeout_s if most_s is None else min(hook.timeout_s, most_s)
    with hidden_in_logs(state.redactor):
        try:
            reply = await within(seconds, _run(hook, moment, state))
        except TimeoutError:
            raise HookError(f"It did not finish within {seconds:g} seconds.") from None
        except Exception as error:
            # The error's text may contain secrets, so it goes only to the operator's log.
            activity.logger.exception("the hook %s failed", hook.name)
            raise HookError(f"It failed ({type(error).__name__}); the operator's log has the details.") from None
    texts = {name: getattr(reply, name) for name in ("note", "refusal", "text", "result")}
    shown = {name: clean(state.redactor.text(text)).strip() or None for name, text in texts.items() if text}
    return HookReply(**shown, hide=reply.hide)


async def _run(hook: SessionHook, moment: Moment, state: ThreadState) -> HookReply:
    with hidden_in_logs(state.redactor):  # also while it runs after it was abandoned
        return await apart(_answer, hook, moment, at_home(state))


async def _answer(hook: SessionHook, moment: Moment, state: ThreadState) -> HookReply:
    return HookReply.model_validate(await hook.run(moment, state) or {}, from_attributes=True)


async def report(pool: Pool, ref: SessionRef, name: str, point: HookPoint, step: int, key: str, error: str) -> None:
    row = EventRow.of(ref, HookFailed(hook=name, point=point, step=step, error=error))
    await events.append(pool, f"hook/{key}/{name}", [row], again=True)
