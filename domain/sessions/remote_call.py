"""A tool call that continues elsewhere: its record in the store, and the condition for which the workflow waits."""

from pydantic import BaseModel, ConfigDict, Field

from domain.ids import derive_id
from domain.json_object import JsonObject

LONGEST_POLL_MS = 300_000  # long, so that a call of weeks does not fill the session's history
SHORTEST_POLL_MS = 500
MOST_ASKED = 10  # forms at a time
MOST_ROUNDS = 50  # rounds of forms in one call


class RemoteForm(BaseModel):
    """A question of the other side."""

    model_config = ConfigDict(frozen=True)

    key: str  # the other side's key of the question
    message: str
    answer_schema: JsonObject


class RemoteCall(BaseModel):
    """The handle of the call. A worker that finds it asks for the outcome instead of making the call again."""

    model_config = ConfigDict(frozen=True)

    task_id: str | None = None  # of the other side
    state: str | None = None  # the other side's, if there is no task: to be sent back with the answers
    sent: bool = False  # if there is no task: the answers were sent, and the result is not known
    round: int = 0  # how often it has asked for input
    answered: list[str] = Field(default_factory=list)  # the keys of forms that were sent back
    forms: list[RemoteForm] = Field(default_factory=list)  # of this round; empty: it does not wait for answers
    # A question during a request cannot wait for people. It was cancelled, and the call is made again with the answers.
    cancelled: str | None = None  # the error with which the call ended then
    given: JsonObject = Field(default_factory=dict)  # people's answers so far, as the protocol has them


class PendingCall(BaseModel):
    """The condition for which the workflow waits before it continues a call."""

    model_config = ConfigDict(frozen=True)

    wait_ms: int = 0
    round: int = 0
    forms: int = 0  # how many answers it needs


def form_id(node: str, index: int, round: int, number: int) -> str:
    """The id of the input request for one form of a call."""
    return derive_id(node, "remote_form", index, round, number)
