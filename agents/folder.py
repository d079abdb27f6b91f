"""A folder of agent files that is read again when one of them has changed."""

from pathlib import Path

from agents.catalogue import Catalogue
from agents.loader import LoadedAgents, check_agents

Fingerprint = frozenset[tuple[str, int, int, int]]


class AgentFolder:
    """A check costs one stat call per file, so it can run every second. It does not rely on notifications of the
    system, which network drives and containers do not deliver."""

    def __init__(self, folder: Path, known: Catalogue) -> None:
        self._folder = folder
        self._known = known
        self._seen: Fingerprint | None = None

    def changes(self) -> LoadedAgents | None:
        """All agents of the folder, if a file was added, changed or removed since the last call; else None."""
        now = self._fingerprint()  # taken before reading, so that a change during the read is seen next time
        if now == self._seen:
            return None
        loaded = check_agents(self._folder, self._known)
        self._seen = now
        return loaded

    def _fingerprint(self) -> Fingerprint:
        found = []
        for path in (*self._folder.glob("*.md"), *self._folder.glob("prompts/*.md")):
            try:
                about = path.stat()
            except OSError:  # it was just removed, or is a dangling link
                continue
            found.append((str(path), about.st_mtime_ns, about.st_size, about.st_ino))
        return frozenset(found)
