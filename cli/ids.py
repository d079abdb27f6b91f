"""Ids as people type them: any unambiguous prefix, `last` for the newest task, `-` for the one used last."""

import contextlib
import hashlib
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem
from errand.models import Task, TaskPage

from cli.api import Api, parse, segment
from cli.errors import Ambiguous, NotFoundError, Refused
from cli.render.output import one_line
from domain.ids import is_id
from settings import Settings, SettingsError

CANDIDATES = 10
LAST, PREVIOUS = "last", "-"


class TaskId(click.ParamType[str, Any]):
    """The id of a task; `remote` resolves it, because that needs the server."""

    name = "id"
    field: str | None = None  # of the task, if it is not the task's own id that the command needs

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        with contextlib.suppress(click.ClickException, SettingsError), _api_of_completion() as api:
            prefix = incomplete if incomplete and incomplete.isalnum() else None
            found = _tasks(api, id_prefix=prefix, top_level=prefix is None, limit=20)
            return [CompletionItem(one.short_id or one.task_id, help=_describe(one)) for one in found]
        return []


class ConversationIdType(TaskId):
    """The id of a conversation, or of any task in it."""

    field = "conversation_id"


class ThreadIdType(TaskId):
    """The id of a thread (a conversation's main one, or a subagent's), or of any task in it."""

    field = "thread_id"


class AgentNameType(click.ParamType[str, Any]):
    name = "agent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        with contextlib.suppress(click.ClickException, SettingsError), _api_of_completion() as api:
            items = api.get("/agents")["items"]
            found = [one for one in items if one["name"].startswith(incomplete)]
            return [CompletionItem(one["name"], help=one_line(one["description"])) for one in found]
        return []


def resolve(api: Api, text: str, field: str | None = None) -> str:
    """The id that the user means. A whole id is used as it is: the server decides whether it exists.

    `field`: the field of the task's session to use instead of its own id.
    """
    found = _find_id(api, text)
    write_last(api.address, found)
    if field:
        with contextlib.suppress(NotFoundError, Refused):  # it is a conversation without tasks; or the command explains
            kind = "sessions" if field == ThreadIdType.field else "tasks"  # a task's record does not name its thread
            return str(api.get(f"/{kind}/{segment(found)}").get(field) or found)
    return found


def _find_id(api: Api, text: str) -> str:
    if is_id(text):
        return text
    if text == PREVIOUS:
        if (known := read_last(api.address)) is None:
            raise NotFoundError("no task was used here before; `-` is the id that a command used last")
        return known
    if text == LAST:
        newest = _tasks(api, own=True, top_level=True, limit=1)
        if not newest:
            raise NotFoundError("there is no task yet")
        return newest[0].task_id
    prefix = text.lower()
    # checked here, because the server's refusal of the filter would speak of a parameter that nobody typed
    if not (prefix.isascii() and prefix.isalnum() and len(prefix) <= 26):
        raise NotFoundError(f"{text!r} is not the beginning of an id")
    found = _tasks(api, id_prefix=prefix, limit=CANDIDATES + 1)
    if len(found) == 1:
        return found[0].task_id
    if not found:
        raise NotFoundError(f"no id begins with {prefix!r}; `tasks` lists them")
    lines = [f"  {one.short_id or one.task_id}  {_describe(one)}" for one in found[:CANDIDATES]]
    lines += ["  …"] if len(found) > CANDIDATES else []
    candidates = [one.task_id for one in found[:CANDIDATES]]
    message = f"several ids begin with {prefix!r}; type more of one:\n" + "\n".join(lines)
    raise Ambiguous(message, body={"candidates": candidates})


def resolve_arguments(api: Api, values: dict[str, Any]) -> dict[str, Any]:
    """Replace typed ids of tasks and conversations in a command's values by whole ids."""
    params = click.get_current_context().command.params
    fields = {param.name: param.type.field for param in params if isinstance(param.type, TaskId) and param.name}
    return values | {name: resolve(api, values[name], field) for name, field in fields.items() if values.get(name)}


def _tasks(api: Api, **filters: Any) -> list[Task]:
    given = {name: str(value).lower() if isinstance(value, bool) else value for name, value in filters.items()}
    return parse(TaskPage, api.get("/tasks", **given)).items


def _describe(task: Task) -> str:
    return f"{one_line(task.agent)}, {task.status}: {one_line(task.title, 60)}"


def _api_of_completion() -> Api:
    return Api(Settings.from_env(), patience=0)  # somebody who presses Tab must not wait


# state on this machine: the id used last, and the lines typed in chats


def state_folder() -> Path | None:
    """A private folder of the user; None if it cannot be made."""
    settings = click.get_current_context().find_object(Settings)
    base = settings.xdg_state_home if settings and settings.xdg_state_home else None
    try:
        folder = (base or Path.home() / ".local" / "state") / "errand"
        # private, because lines that were typed in chats are stored here
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder


def _last_file(address: str) -> Path | None:
    """The file for a server; each server has its own."""
    folder = state_folder()
    # a digest, because an address contains characters that file names cannot have
    return folder / f"last-{hashlib.sha256(address.encode()).hexdigest()[:12]}" if folder else None


def read_last(address: str) -> str | None:
    file = _last_file(address)
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return (file.read_text().strip() or None) if file else None
    return None


def write_last(address: str, task_id: str) -> None:
    file = _last_file(address)
    with contextlib.suppress(OSError):  # only a convenience, so no command fails without it
        if file:
            file.write_text(task_id)


def chat_history() -> Path | None:
    folder = state_folder()
    return folder / "chat-history" if folder else None
