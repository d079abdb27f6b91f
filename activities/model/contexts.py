"""Contexts: the path of messages to a head, cached by the worker because the tree never changes."""

from collections import OrderedDict

from domain.messages import Node
from domain.sessions.session import SessionRef
from store import messages, resets
from store.database import Pool
from store.messages import HistoryLost

REMEMBERED = 200


class Contexts:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._known: OrderedDict[tuple[SessionRef, str], list[Node]] = OrderedDict()

    async def load(self, ref: SessionRef, line: str, head: str | None) -> list[Node]:
        """The nodes up to `head`. For a line that this worker knows, only new nodes are read. If the nodes are lost,
        the result is empty and the conversation starts again."""
        if head is None:
            return []
        known = self._known.get((ref, line), [])
        if known and known[-1].id == head:
            return known
        try:
            fresh, follows = await messages.context(self._pool, ref.tenant, head, known[-1].id if known else None)
        except HistoryLost:
            await resets.begin_anew(self._pool, ref, head)
            return []
        nodes = known + fresh if follows else fresh
        self.remember(ref, line, nodes)
        return nodes

    async def prompt(self, ref: SessionRef, call: str) -> str:
        """The prompt inside a tool call, given as "node/index"."""
        return await messages.prompt(self._pool, ref.tenant, call)

    def remember(self, ref: SessionRef, line: str, nodes: list[Node]) -> None:
        self._known[ref, line] = nodes
        self._known.move_to_end((ref, line))
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def forget(self, ref: SessionRef) -> None:
        for key in [key for key in self._known if key[0] == ref]:
            del self._known[key]
