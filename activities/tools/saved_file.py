"""An artifact on its way into the store: its row, and what watchers are told of it."""

from dataclasses import dataclass
from typing import Any

from activities.tools.tool import ArtifactFile


@dataclass(frozen=True)
class SavedFile:
    id: str
    sha256: str
    artifact: ArtifactFile

    @property
    def row(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "sha256": self.sha256,
            "size": len(self.artifact.content),
            "name": self.artifact.name,
            "media_type": self.artifact.media_type,
            "type": self.artifact.type,
            "description": self.artifact.description,
        }

    @property
    def event(self) -> dict[str, Any]:
        return {
            "name": self.artifact.name,
            "artifact_type": self.artifact.type,
            "file_id": self.id,
            "size": len(self.artifact.content),
        }
