"""Which file names are safe: in a workspace, in a header and on somebody's screen."""

import re

from api.http.problems import finding
from domain.errors import Invalid

MAX_BYTES = 255
# control characters, path separators, half surrogates, undecodable bytes, and marks that turn the reading direction
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f/\\\\\ud800-\udfff\ufffd\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def check_name(name: str, pointer: str = "/name") -> str:
    problem = _problem(name)
    if problem:
        found = finding(pointer, "file_name", problem)
        raise Invalid("The file name is not allowed.", type="invalid-filename", errors=[found])
    return name


def _problem(name: str) -> str | None:
    if not name.strip() or name != name.strip():
        return "must not be empty, and not begin or end with a space"
    if _FORBIDDEN.search(name):
        return "no separators, control characters or marks that change the reading direction"
    if name in (".", "..") or name.startswith("-"):
        return "must not be . or .. nor begin with -"
    if len(name.encode()) > MAX_BYTES:
        return f"at most {MAX_BYTES} bytes"
    return None
