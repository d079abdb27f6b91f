"""Messages, states and references to files are separate models, which accept nothing else."""

from typing import Any

import pytest
from errand.models import AgentState
from pydantic import BaseModel, ValidationError

from domain.channels import ChannelMessage, IncomingMessage
from domain.ids import new_id

MESSAGE: dict[str, Any] = {"text": "Hello", "files": [new_id()], "message_id": "m1", "thread": "t1"}


def test_messages_states_and_file_references_have_types() -> None:
    message = IncomingMessage(**MESSAGE, channel_id="room", user_id="ann")
    assert (message.text, message.visible, message.wake) == ("Hello", True, True)
    wrong: list[dict[str, Any]] = [{"files": ["/etc/passwd"]}, {"files": [7]}, {"text": 7}, {"role": "system"}]
    for fields in wrong:
        with pytest.raises(ValidationError):
            ChannelMessage(**{**MESSAGE, **fields})
    state = AgentState.model_fields
    assert {"agent", "models", "routing", "markers", "generation"} <= state.keys()
    assert not isinstance(message, AgentState) and issubclass(AgentState, BaseModel)
