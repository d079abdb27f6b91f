"""The response for a file, and the check of its name."""

import re

from api.http.problems import finding
from domain.errors import Invalid
from domain.policy.subjects import MAX_DEPTH

MAX_BYTES = 255  # of one name
MAX_PATH_BYTES = 1_000
# control characters, path separators, lone surrogates, undecodable bytes, marks that change the reading direction
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f/\\\\\ud800-\udfff\ufffd\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def check_file_name(name: str, pointer: str = "/name") -> str:
    """The name, which may include folders, if it is safe in a workspace, in a header and on a screen."""
    problem = path_problem(name)
    if problem:
        found = finding(pointer, "file_name", problem)
        raise Invalid("The file name is not allowed.", type="invalid-filename", errors=[found])
    return name


def path_problem(path: str) -> str | None:
    """The fault of a path in a workspace."""
    names = path.split("/")
    if len(names) > MAX_DEPTH or len(path.encode(errors="replace")) > MAX_PATH_BYTES:
        return f"at most {MAX_DEPTH} folders and {MAX_PATH_BYTES} bytes"
    return next((problem for name in names if (problem := _problem(name))), None)


def _problem(name: str) -> str | None:
    if not name.strip() or name != name.strip():
        return "must not be empty, and not begin or end with a space"
    if _FORBIDDEN.search(name):
        return "no separators, control characters or marks that change the reading direction"
    # a name that begins with - is an option to most commands that an agent would run on it
    if name in (".", "..") or name.startswith("-"):
        return "must not be . or .. nor begin with -"
    if len(name.encode()) > MAX_BYTES:
        return f"at most {MAX_BYTES} bytes"
    return None
