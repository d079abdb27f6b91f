"""A subagent as a tool of a prompt: which agent, whether it is waited for, and whether it can be addressed again."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from domain.agents.names import AgentName, VariableName
from domain.agents.side import PropertyName
from domain.agents.spelling import AgentPart


class ParentCommunication(StrEnum):
    IMPLICIT = "implicit"  # its end is queued for the parent
    EXPLICIT = "explicit"  # only what it sends with notify_parent reaches the parent


class ReceivingSide(StrEnum):
    """The side of the child that receives a parent's message. It arrives there as a message of the other side."""

    SIDE_A = "side_a"
    SIDE_B = "side_b"


class WorkspaceSharing(StrEnum):
    INHERIT = "inherit"  # the parent's workspace
    ISOLATED = "isolated"  # a separate one; files cross only as attachments


class Resumable(AgentPart):
    """An instance that still exists after its result and can be sent further messages."""

    receives_messages: ReceivingSide = ReceivingSide.SIDE_A
    max_instances: int | None = Field(default=None, ge=1, le=100)
    parent_communication: ParentCommunication = ParentCommunication.IMPLICIT


class Immediate(AgentPart):
    """The child starts when its parent's prompt becomes active, before the first model step."""

    name_env: VariableName | None = None  # a variable that names the child; the model may see it
    description_env: VariableName | None = None  # a variable that describes its work; the model may see it
    scoped_env: list[VariableName] = Field(default_factory=list, max_length=50)  # handed over, never shown to a model


def _from_flag(value: Any) -> Any:
    """`true` means an object with the defaults, `false` means None."""
    if value is True:
        return {}
    return None if value is False else value


class SubagentTool(AgentPart):
    name: AgentName
    blocking: bool = True
    resumable: Annotated[Resumable | None, BeforeValidator(_from_flag)] = None
    immediate: Annotated[Immediate | None, BeforeValidator(_from_flag)] = None
    optional: VariableName | None = None  # available only if this variable is true, 1 or yes
    hidden: bool = False  # not offered to the model: it runs only as `immediate`
    init_user_message_property: PropertyName | None = None  # the argument that is the child's first message
    init_attachments_property: PropertyName | None = None  # the argument with paths of files to copy to it
    init_agent_name_property: PropertyName | None = None  # the argument that names the instance
    environment: WorkspaceSharing = WorkspaceSharing.ISOLATED
    scoped_env: list[VariableName] = Field(default_factory=list, max_length=50)  # handed over; not inherited otherwise

    @property
    def handed_over(self) -> list[str]:
        """The variables whose values are given to the child's thread but never shown to a model."""
        return [*self.scoped_env, *(self.immediate.scoped_env if self.immediate else [])]

    @property
    def hints(self) -> list[str]:
        """The variables that the model may see because they name or describe the child."""
        named = [self.immediate.name_env, self.immediate.description_env] if self.immediate else []
        return [name for name in named if name is not None]
