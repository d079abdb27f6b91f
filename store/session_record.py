"""Columns of a session's row that say what kind of record it is, and how it is kept."""

from datetime import datetime

from pydantic import BaseModel

from domain.sessions.rerun import Rerun


class Kept(BaseModel):
    rerun: Rerun | None = None  # whose repetition it is
    dry_run: bool = False  # calls with an effect are described, not made
    typed: bool = False  # its output is JSON that fits its agent's output schema
    retention_ms: int
    keep_until: datetime | None = None  # of its content; None until it has ended
    content_removed_at: datetime | None = None
