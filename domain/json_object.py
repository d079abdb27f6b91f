"""JSON whose shape we do not define: a JSON schema, the arguments of a tool call, a caller's own metadata."""

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
