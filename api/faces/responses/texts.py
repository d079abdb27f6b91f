"""Messages and reasoning of the fold: their first delta opens them, and they are closed once their kind is known."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from api.faces.responses.objects import (
    ItemStatus,
    OutputMessage,
    OutputText,
    Reasoning,
    StreamEvent,
    SummaryText,
)
from domain.json_object import JsonObject

Kind = Literal["message", "thinking"]
Emit = Callable[[StreamEvent], None]
NextIndex = Callable[[], int]
Closed = tuple[int, OutputMessage | Reasoning]  # with its output index


@dataclass
class OpenText:
    kind: Kind
    id: str
    index: int
    text: str = ""

    @property
    def where(self) -> JsonObject:
        place = "content_index" if self.kind == "message" else "summary_index"
        return {"item_id": self.id, "output_index": self.index, place: 0}

    def item(self, text: str | None, status: ItemStatus, *, final: bool = False) -> OutputMessage | Reasoning:
        if self.kind == "thinking":
            summary = [SummaryText(text=text)] if text is not None else []
            return Reasoning(id=self.id, summary=summary, status=status)
        content = [OutputText(text=text)] if text is not None else []
        # a message is a commentary until its task is known to be done
        return OutputMessage(
            id=self.id, content=content, status=status, phase="final_answer" if final else "commentary"
        )


@dataclass(frozen=True)
class Said:
    text: str
    interrupted: bool


class Texts:
    """Open items by kind and step, because lines of one session may write at the same time."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._open: dict[tuple[Kind, int], OpenText] = {}
        self._said: dict[int, Said] = {}  # whole messages whose phase is not known yet, by step
        self._resets: Counter[int] = Counter()

    def delta(self, type: str, step: int, text: str, next_index: NextIndex, emit: Emit) -> None:
        kind: Kind = "message" if type == "message_delta" else "thinking"
        self._append(self._opened(kind, step, next_index, emit), text, emit)

    def reset(self, step: int, emit: Emit) -> None:
        """Close the items of a void attempt; they do not belong to the response."""
        self._said.pop(step, None)
        kinds: tuple[Kind, Kind] = ("thinking", "message")
        for kind in kinds:
            if (opened := self._open.pop((kind, step), None)) is not None:
                self._void(opened, emit)
        self._resets[step] += 1

    def thought(self, step: int, text: str, next_index: NextIndex, emit: Emit) -> Closed:
        return self._close("thinking", step, text, next_index, emit)

    def said(self, step: int, text: str, interrupted: bool) -> None:
        self._said[step] = Said(text, interrupted)

    def flush(self, output: str | None, next_index: NextIndex, emit: Emit) -> list[Closed]:
        """Close the complete messages. With `output` the task is done: the last message is the answer, in that form."""
        waiting, self._said = self._said, {}
        last = max(waiting, default=0)
        if output is not None and not waiting:  # a tool call ended the task, with the result in its arguments
            waiting = {last: Said(output, interrupted=False)}
        closed = []
        for step, said in waiting.items():
            final = output is not None and step == last
            text = output if final and output is not None else said.text
            status: ItemStatus = "incomplete" if said.interrupted else "completed"
            closed.append(self._close("message", step, text, next_index, emit, status, final=final))
        return closed

    def abandon(self, emit: Emit) -> None:
        """Close items that the session's end interrupted."""
        for opened in self._open.values():
            self._void(opened, emit)
        self._open.clear()

    def _opened(self, kind: Kind, step: int, next_index: NextIndex, emit: Emit) -> OpenText:
        if (known := self._open.get((kind, step))) is not None:
            return known
        # clients find items by id, so that a new attempt must not reuse the id of the void one
        again = f"_{self._resets[step]}" if self._resets[step] else ""
        prefix = "msg" if kind == "message" else "rs"
        opened = OpenText(kind, f"{prefix}_{self._session_id}_{step}{again}", next_index())
        self._open[kind, step] = opened
        item = opened.item(None, "in_progress")
        emit(StreamEvent(type="response.output_item.added", item=item, output_index=opened.index))
        emit(_of_part(opened, "added", ""))
        return opened

    def _append(self, opened: OpenText, text: str, emit: Emit) -> None:
        opened.text += text
        if opened.kind == "message":
            emit(StreamEvent(type="response.output_text.delta", delta=text, logprobs=[], **opened.where))
        else:
            emit(StreamEvent(type="response.reasoning_summary_text.delta", delta=text, **opened.where))

    def _close(
        self,
        kind: Kind,
        step: int,
        text: str,
        next_index: NextIndex,
        emit: Emit,
        status: ItemStatus = "completed",
        *,
        final: bool = False,
    ) -> Closed:
        opened = self._opened(kind, step, next_index, emit)
        # a message that came whole, without deltas: clients build the text from deltas alone
        if not opened.text:
            self._append(opened, text, emit)
        del self._open[kind, step]
        return opened.index, self._done(opened, text, status, emit, final=final)

    def _void(self, opened: OpenText, emit: Emit) -> None:
        self._done(opened, opened.text, "incomplete", emit)

    def _done(
        self, opened: OpenText, text: str, status: ItemStatus, emit: Emit, *, final: bool = False
    ) -> OutputMessage | Reasoning:
        if opened.kind == "message":
            emit(StreamEvent(type="response.output_text.done", text=text, logprobs=[], **opened.where))
        else:
            emit(StreamEvent(type="response.reasoning_summary_text.done", text=text, **opened.where))
        emit(_of_part(opened, "done", text))
        item = opened.item(text, status, final=final)
        emit(StreamEvent(type="response.output_item.done", item=item, output_index=opened.index))
        return item


def _of_part(opened: OpenText, moment: str, text: str) -> StreamEvent:
    if opened.kind == "message":
        return StreamEvent(type=f"response.content_part.{moment}", part=OutputText(text=text), **opened.where)
    return StreamEvent(type=f"response.reasoning_summary_part.{moment}", part=SummaryText(text=text), **opened.where)
