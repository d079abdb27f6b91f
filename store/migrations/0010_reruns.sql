-- Reruns: a session that repeats another one from one of its steps, and the workspace as it was at that step.

ALTER TABLE sessions ADD COLUMN rerun text;                 -- JSON: whose rerun it is, from which step, with recorded answers

-- What each change of a workspace replaced: going back through these, from the newest, leads to any earlier moment.
CREATE TABLE workspace_changes (
    tenant      text        NOT NULL,
    id          text        NOT NULL,                       -- the workspace
    version     bigint      NOT NULL,                       -- that the change led to
    undo        text        NOT NULL,                       -- JSON: path -> its entry before, or null where there was none
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, id, version)
);
