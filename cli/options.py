"""Options that several commands share, and the human way to write a duration."""

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from cli.client.api import Api
from settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PIECE = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


class Duration(click.ParamType[int, Any]):
    """30s, 10m, 2h, 1d, 1h30m; the value is milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip().lower()
        if not re.fullmatch(rf"(?:{_PIECE.pattern}\s*)+", text):
            self.fail(f"{value!r} is not a duration; write 30s, 10m, 2h, 1d or 1h30m", param, ctx)
        return int(sum(float(number) * _UNITS[unit] for number, unit in _PIECE.findall(text)))


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")

patience_option = click.option(
    "--patience",
    type=Duration(),
    default="5m",
    show_default=True,
    help="How long to try to reconnect while the API is away.",
)


def settings() -> Settings:
    found = click.get_current_context().find_object(Settings)
    assert found is not None
    return found


def remote(command: F) -> F:
    """For a command that talks to the API: adds --url, --key and --json, and passes the client as `api`."""

    @click.option("--url", help="Address of the API.  [default: ERRAND_URL, else the running stack]")
    @click.option("--key", help="API key.  [default: ERRAND_API_KEY]")
    @json_option
    @functools.wraps(command)
    def call(*args: Any, url: str | None, key: str | None, **kwargs: Any) -> Any:
        with Api(settings(), url=url, key=key) as api:
            return command(*args, api=api, **kwargs)

    return call  # type: ignore[return-value]
