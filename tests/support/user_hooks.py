"""Hooks of a user's module for tests: each writes its arguments to a file in the workspace."""

import asyncio
import json
import sys
import time
from pathlib import Path

from activities.hooks.hook import SessionHook
from activities.thread_state import ThreadState
from domain.agents.hook import (
    AfterTool,
    BeforeReply,
    BeforeResult,
    BeforeTool,
    FilterMessages,
    HookPoint,
    HookReply,
    Moment,
    OnMessage,
    SubagentCreated,
    SystemMessage,
    ThreadCreated,
)
from domain.policy.rules import PathError

LOG = "hooks.jsonl"


async def noting(moment: Moment, state: ThreadState) -> None:
    """Write one line for each moment, however often it is retried: a retry finds the line with its key."""
    try:
        lines = (await state.files.read(LOG)).decode().splitlines()
    except PathError:
        lines = []
    given = {"at": type(moment).__name__, **moment.model_dump(exclude={"session_id", "conversation_id"})}
    kept = [line for line in lines if json.loads(line)["key"] != moment.key]
    await state.files.write(LOG, "\n".join([*kept, json.dumps(given)]).encode())


async def guards(moment: BeforeTool, state: ThreadState) -> HookReply | None:
    return HookReply(refusal="Not on my watch.") if "forbidden" in json.dumps(moment.arguments) else None


async def adds_note(moment: Moment, state: ThreadState) -> HookReply:
    return HookReply(note=f"Remember {state.variables.get('TOKEN', 'the milk')}.")


async def publishes(moment: AfterTool, state: ThreadState) -> HookReply:
    await state.set_status(f"{moment.tool} was {moment.state}")
    return HookReply(note=f"{moment.tool} done.")


async def reports(moment: Moment, state: ThreadState) -> None:
    await state.files.write("out.txt", b"grown")
    await state.notify_parent("See out.txt.", attachments=["out.txt"])


async def fails(moment: Moment, state: ThreadState) -> None:
    raise RuntimeError(f"a secret of a hook: {state.variables.get('TOKEN', '')}")


async def leaves(moment: Moment, state: ThreadState) -> None:
    sys.exit("a user's hook ends the process")


async def sleeps(moment: OnMessage, state: ThreadState) -> None:
    await asyncio.sleep(60)


async def blocks(moment: OnMessage, state: ThreadState) -> HookReply:
    """Block its thread, as careless code does, until the file named in the message exists."""
    gate = Path(moment.text.split()[2])
    await state.set_status("blocked")
    while not gate.exists():  # noqa: ASYNC240 - this is what must not stall the worker
        time.sleep(0.02)  # noqa: ASYNC251
    await state.set_status("free")
    return HookReply(text=f"{moment.text}\nGo on.")


async def dozes(moment: Moment, state: ThreadState) -> None:
    time.sleep(3)  # noqa: ASYNC251


async def forgets(moment: FilterMessages, state: ThreadState) -> HookReply:
    wanted = any("Forget it." in one.text for one in moment.messages)
    return HookReply(hide=[one.id for one in moment.messages if wanted and "list_files" in one.tools])


async def shortens(moment: BeforeResult, state: ThreadState) -> HookReply:
    return HookReply(result=f"{moment.tool} returned something.")


async def rewrites(moment: OnMessage, state: ThreadState) -> HookReply | None:
    return HookReply(text=moment.text.replace("the vault", "[place]")) if "the vault" in moment.text else None


async def welcomes(moment: ThreadCreated, state: ThreadState) -> None:
    await state.set_status(f"{moment.thread_id} is new")


async def introduces(moment: SubagentCreated, state: ThreadState) -> HookReply:
    return HookReply(note=f"{moment.name} of {moment.subagent} is {moment.reference}.")


async def instructs(moment: SystemMessage, state: ThreadState) -> HookReply:
    return HookReply(text=f"{moment.text}\n\nSign with {state.variables.get('TOKEN', 'a smile')}.")


async def signs(moment: BeforeReply, state: ThreadState) -> HookReply | None:
    return HookReply(text=f"{moment.text} Yours.") if moment.text else None


async def queues_once(moment: Moment, state: ThreadState) -> None:
    """Only once for each thread, because the end of the turn that this starts calls the hook again."""
    try:
        await state.files.read("queued.txt")
    except PathError:
        await state.files.write("queued.txt", b"done")
        await state.queue_tool("list_files", path=".")


HOOKS = [
    SessionHook(name="queues_once", point=HookPoint.ON_END, run=queues_once),
    SessionHook(name="instructs", point=HookPoint.AFTER_SYSTEM_MESSAGE, run=instructs),
    SessionHook(name="signs", point=HookPoint.BEFORE_REPLY, run=signs),
    SessionHook(name="forgets", point=HookPoint.FILTER_MESSAGES, run=forgets),
    SessionHook(name="shortens", point=HookPoint.BEFORE_RESULT, run=shortens),
    SessionHook(name="rewrites", point=HookPoint.ON_MESSAGE, run=rewrites),
    SessionHook(name="welcomes", point=HookPoint.AFTER_THREAD_CREATED, run=welcomes),
    SessionHook(name="introduces", point=HookPoint.AFTER_SUBAGENT_CREATED, run=introduces),
    *(SessionHook(name=f"notes.{point}", point=point, run=noting) for point in HookPoint),
    SessionHook(name="guards", point=HookPoint.BEFORE_TOOL, run=guards),
    SessionHook(name="adds_note", point=HookPoint.BEFORE_MODEL, run=adds_note),
    SessionHook(name="publishes", point=HookPoint.AFTER_TOOL, run=publishes),
    SessionHook(name="reports", point=HookPoint.ON_END, run=reports),
    *(SessionHook(name=f"fails.{point}", point=point, run=fails) for point in HookPoint),
    SessionHook(name="leaves", point=HookPoint.AFTER_MODEL, run=leaves),
    SessionHook(name="blocks", point=HookPoint.ON_MESSAGE, run=blocks, timeout_s=60),
    SessionHook(name="dozes", point=HookPoint.BEFORE_MODEL, run=dozes, timeout_s=0.3),
    SessionHook(name="sleeps", point=HookPoint.ON_MESSAGE, run=sleeps, timeout_s=0.3),
]
