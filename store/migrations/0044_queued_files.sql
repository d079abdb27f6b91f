-- Files of messages that wait for their turn; they enter the workspace when their session begins.
CREATE TABLE queued_files (
    tenant     text NOT NULL,
    session_id text NOT NULL,
    manifest   text NOT NULL,   -- JSON: entries of the workspace, by path
    PRIMARY KEY (tenant, session_id)
);
