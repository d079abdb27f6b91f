"""JSON whose shape we do not define: a JSON schema, the arguments of a tool call, a caller's own metadata."""

import json
import math
from typing import Any, TypeAlias, TypeVar

from pydantic import Json

T = TypeVar("T")
JsonObject: TypeAlias = dict[str, Any]
Stored: TypeAlias = Json[T] | T  # also read from the text in which a column holds it


def read_json(text: str | bytes) -> Any:
    """The value, or a ValueError. Python's own reader also accepts numbers that no JSON can hold, such as NaN."""
    try:
        return json.loads(text, parse_constant=_read_number, parse_float=_read_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _read_number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not a number in JSON")
    return number
