"""Varying a repeated call a little, so that it does not count as a loop."""

from typing import Any


def varied(tool: str, given: dict[str, Any], number: int) -> dict[str, Any]:
    """The input with a harmless difference; unchanged for tools that have none."""
    if tool == "bash" and "command" in given:
        return {**given, "command": f"{given['command']} # {number}"}
    if tool == "list_files":
        return {**given, "path": "/".join([str(given.get("path", ".")), *["."] * (number % 100)])}
    if tool == "read_file":
        return {**given, "limit": 1_000 + number % 4_000}
    if tool == "report_progress":
        return {"message": f"{given.get('message', 'Round')} {number}"}
    if tool == "write_file" and "content" in given:
        return {**given, "content": f"{given['content']} {number}"}
    if "number" in given:
        return {**given, "number": number}
    return given
