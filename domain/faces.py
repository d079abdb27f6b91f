"""The record of a request that came through a face, which is another protocol over the same tasks. The rest is in the
session."""

from datetime import datetime

from domain.frozen import Frozen


class FaceRequest(Frozen):
    """One row. The public id derives from the session's id, so that a task of another face has one too."""

    face: str
    public_id: str
    session_id: str
    part: int = 1  # which part of the session it is
    request: str = "{}"  # JSON, as the face reads it
    digest: str = ""  # of the caller and the request, by which a repeat is recognised


class StoredFaceRequest(FaceRequest):
    created_at: datetime
    deleted_at: datetime | None = None


class NewFaceRequest(Frozen):
    """A request whose session has no id yet."""

    face: str
    prefix: str  # of the public id
    request: str
    digest: str

    def place(self, session_id: str) -> FaceRequest:
        return FaceRequest(
            face=self.face,
            public_id=self.prefix + session_id,
            session_id=session_id,
            request=self.request,
            digest=self.digest,
        )
