"""Names that several parts of a definition use."""

from typing import Annotated

from pydantic import Field

AGENT_NAME_PATTERN = r"^[a-z][a-z0-9_-]{0,62}$"
AgentName = Annotated[str, Field(pattern=AGENT_NAME_PATTERN)]
VARIABLE_NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_]{0,62}$"
VariableName = Annotated[str, Field(pattern=VARIABLE_NAME_PATTERN)]
GivenVariables = Annotated[
    dict[VariableName, Annotated[str, Field(min_length=1, max_length=10_000)]], Field(min_length=1, max_length=50)
]
HookName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]{0,99}$")]
ModelName = Annotated[str, Field(pattern=r"^[!-~]{1,200}$")]  # it is in prompts, events and logs
