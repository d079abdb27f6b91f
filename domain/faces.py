"""What a face, another protocol over the same tasks, knows of a request that it took: the session has all the rest."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict


class FaceRequest(BaseModel):
    """One row. The public id derives from the session's, so that a task of another face has one too."""

    model_config = ConfigDict(frozen=True)

    face: str
    public_id: str
    session_id: str
    part: int = 1  # of the session
    request: str = "{}"  # JSON, as the face reads it
    digest: str = ""  # of caller and request: finds what a repeat asked for before


class StoredFaceRequest(FaceRequest):
    created_at: datetime
    deleted_at: datetime | None = None


class NewFaceRequest(BaseModel):
    """A request whose session has no id yet."""

    model_config = ConfigDict(frozen=True)

    face: str
    prefix: str  # of the public id
    request: str
    digest: str

    def placed(self, session_id: str) -> FaceRequest:
        return FaceRequest(
            face=self.face,
            public_id=self.prefix + session_id,
            session_id=session_id,
            request=self.request,
            digest=self.digest,
        )
