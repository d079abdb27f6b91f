"""JSON whose shape is not ours to declare: a JSON schema, the arguments of a tool call, a caller's own metadata."""

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
