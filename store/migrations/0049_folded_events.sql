-- The deltas of an ended session are folded: a row then holds several of them, see store/folded_events.py.
ALTER TABLE events ADD COLUMN folded smallint;     -- how many events the row holds; null: it is one event

-- Sessions that have ended and whose deltas are still rows of their own.
CREATE TABLE unfolded_sessions (
    tenant     text        NOT NULL,
    session_id text        NOT NULL,
    ended_at   timestamptz NOT NULL,
    PRIMARY KEY (tenant, session_id)
);
CREATE INDEX unfolded_sessions_by_end ON unfolded_sessions (ended_at);
INSERT INTO unfolded_sessions (tenant, session_id, ended_at)
SELECT tenant, id, ended_at FROM sessions WHERE ended_at IS NOT NULL AND content_removed_at IS NULL;
