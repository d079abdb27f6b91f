-- What a task adds to its agent's definition, and what only a face (another protocol over the same tasks) knows of a
-- request that it took: one row for each public id, which derives from the session's.

ALTER TABLE sessions ADD COLUMN task_terms text;           -- JSON: TaskTerms; NULL: nothing

CREATE TABLE face_requests (
    tenant      text        NOT NULL,
    face        text        NOT NULL,                      -- the protocol: responses
    public_id   text        NOT NULL,
    session_id  text        NOT NULL,
    part        integer     NOT NULL DEFAULT 1,            -- of the session: which of the parts of its log this request is
    request     text        NOT NULL DEFAULT '{}',         -- JSON, as the face reads it
    digest      text        NOT NULL DEFAULT '',           -- of caller and request: finds what a repeat asked for before
    created_at  timestamptz NOT NULL DEFAULT now(),
    deleted_at  timestamptz,                               -- hidden in this face; the task stays
    PRIMARY KEY (tenant, face, public_id)
);
CREATE INDEX face_requests_by_session ON face_requests (tenant, session_id);
CREATE INDEX face_requests_by_digest ON face_requests (tenant, digest, created_at);
