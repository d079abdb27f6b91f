-- Sessions that have ended and whose deltas are not folded yet. This comes first: events are locked from the next
-- statement on.
CREATE TABLE unfolded_sessions (
    tenant     text        NOT NULL,
    session_id text        NOT NULL,
    ended_at   timestamptz NOT NULL,
    PRIMARY KEY (tenant, session_id)
);
CREATE INDEX unfolded_sessions_by_end ON unfolded_sessions (ended_at);
INSERT INTO unfolded_sessions (tenant, session_id, ended_at)
SELECT tenant, id, ended_at FROM sessions WHERE ended_at IS NOT NULL AND content_removed_at IS NULL;

-- The deltas of an ended session are folded: a row then holds several of them, see store/folded_events.py.
ALTER TABLE events ADD COLUMN folded smallint;     -- how many events the row holds; null: it is one event

-- The deltas of sessions that run or have just ended. A query of `events` reads them too. They are apart because an index
-- does not shrink when most of its entries between others are deleted: here all entries of a session are deleted.
CREATE TABLE live_deltas (
    PRIMARY KEY (tenant, session_id, seq),
    CHECK (type IN ('message_delta', 'thinking_delta'))
) INHERITS (events);
CREATE UNIQUE INDEX live_deltas_by_conversation ON live_deltas (tenant, conversation_id, conv_seq);
