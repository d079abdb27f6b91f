"""How a rule and a changed tool result are written on the command line."""

from typing import Any

import click

from domain.policy.rules import Action


class Permission(click.ParamType[dict[str, Any], Any]):
    """bash:rm *=deny"""

    name = "rule"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        what, _, action = str(value).rpartition("=")
        tool, _, pattern = what.partition(":")
        if not tool or action not in list(Action):
            self.fail(f"{value!r} is not a rule; write TOOL[:PATTERN]=allow, deny or ask", param, ctx)
        return {"permission": tool, "action": action} | ({"pattern": pattern} if pattern else {})


class ResultChange(click.ParamType[dict[str, Any], Any]):
    """0=the new result"""

    name = "result"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        index, found, text = str(value).partition("=")
        if not found or not index.isdecimal():
            self.fail(f"{value!r} is not a result; write INDEX=TEXT, the first call is 0", param, ctx)
        return {"index": int(index), "text": text}
