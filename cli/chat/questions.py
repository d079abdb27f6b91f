"""Questions and approvals in a chat: the next typed line answers the oldest open one."""

from collections import deque
from typing import Any

from errand.models import InputRequest

from cli.answering import Dialogue, Prompt, dialogue, open_requests, post_answer, show_request
from cli.api import Api, EventData

SETTLED = ("input_received", "input_expired")


class ChatRequests:
    """The open requests of a conversation, oldest first; the dialogue with the user is about the first of them."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._open: deque[InputRequest] = deque()
        self._dialogue: Dialogue | None = None
        self.prompt: Prompt | None = None  # the question for the next line; None: the next line is a message

    def handle_event(self, event: EventData) -> bool:
        """Add a new request, or drop one that was settled; True if there is something to show."""
        if event["type"] == "input_required":
            # the event lacks what is needed for the decision; and the request may be settled by now
            new = [one for one in open_requests(self._api, event["session_id"]) if one.id == event["request_id"]]
            self._open.extend(one for one in new if one.id not in self._ids())
            return bool(new)
        if event["type"] in SETTLED and event["request_id"] in self._ids():
            first = self._open[0].id == event["request_id"]
            self._open = deque(one for one in self._open if one.id != event["request_id"])
            # the line that is being typed must not answer the request that follows
            if first:
                self._dialogue = self.prompt = None
        return False

    def load(self, requests: list[InputRequest]) -> None:
        """Add all open requests of the conversation."""
        self._dialogue = self.prompt = None
        self._open = deque(requests)

    @property
    def new(self) -> bool:
        """Whether there is a request that was not shown yet."""
        return self._dialogue is None and bool(self._open)

    @property
    def asked(self) -> str | None:
        """The id of the request that the next line answers."""
        return self._open[0].id if self.prompt is not None else None

    def ask(self) -> Prompt:
        """Show the first open request and begin its dialogue."""
        show_request(self._open[0], hint=False)
        return self._begin()

    def _begin(self) -> Prompt:
        self._dialogue = dialogue(self._open[0])
        self.prompt = next(self._dialogue)
        return self.prompt

    def answer(self, line: str) -> str | None:
        """Handle a typed line; returns a remark for the user once the request was answered or left open."""
        assert self._dialogue is not None
        try:
            self.prompt = self._dialogue.send(line)
            return None
        except StopIteration as end:
            value: Any = end.value
        self._dialogue = self.prompt = None
        request = self._open[0]
        if value is None:
            return self.leave_open()
        try:
            post_answer(self._api, request.session_id, request.id, value)
        except Exception as refused:
            if getattr(refused, "status", 0) == 422:
                self._begin()  # ask again
            else:
                self._open.popleft()
            raise
        self._open.popleft()
        return "Answered."

    def leave_open(self) -> str:
        self._open.popleft()
        self._dialogue = self.prompt = None
        return "Left open; /inbox brings it back."

    def _ids(self) -> set[str]:
        return {one.id for one in self._open}
