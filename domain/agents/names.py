"""Names that several parts of a definition use."""

from typing import Annotated

from pydantic import Field

AGENT_NAME_PATTERN = r"^[a-z][a-z0-9_-]{0,62}$"
AgentName = Annotated[str, Field(pattern=AGENT_NAME_PATTERN)]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,62}$")]
HookName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]{0,99}$")]
