-- Conversations: threads, the mailbox, and at most one live session per thread, enforced by the database itself.

ALTER TABLE conversations
    ADD COLUMN status   text NOT NULL DEFAULT 'open',       -- open | terminated
    ADD COLUMN delivery text,                               -- hold | wake | explicit: overrides the doors' defaults
    ADD COLUMN metadata jsonb NOT NULL DEFAULT '{}';

CREATE TABLE threads (
    tenant           text        NOT NULL,
    id               text        NOT NULL,
    conversation_id  text        NOT NULL,
    parent_thread_id text,                                  -- null: the root thread
    name             text        NOT NULL,                  -- how the parent addresses it
    agent            text        NOT NULL,
    depth            integer     NOT NULL DEFAULT 0,
    created_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);
CREATE INDEX threads_by_conversation ON threads (tenant, conversation_id);
CREATE UNIQUE INDEX threads_by_name ON threads (tenant, conversation_id, parent_thread_id, name);

INSERT INTO threads (tenant, id, conversation_id, name, agent)
SELECT DISTINCT ON (tenant, thread_id) tenant, thread_id, conversation_id, agent, agent FROM sessions;

ALTER TABLE sessions
    ADD COLUMN live          boolean NOT NULL DEFAULT true, -- false while it waits in a queue, and once it has ended
    ADD COLUMN committed     boolean NOT NULL DEFAULT false,-- ended with at least one assistant message
    ADD COLUMN depth         integer NOT NULL DEFAULT 0,
    ADD COLUMN delivery      text,                          -- of its outcome to the spawner: hold | wake | explicit
    ADD COLUMN blocking      boolean NOT NULL DEFAULT false,-- the spawner waits for it in a tool call
    ADD COLUMN await_children boolean NOT NULL DEFAULT true,
    ADD COLUMN subagent_name text,
    ADD COLUMN tools         text[];                        -- what it may use; null: what its definition lists
UPDATE sessions SET live = status IN ('submitted', 'working', 'input_required'), committed = output IS NOT NULL;
CREATE UNIQUE INDEX sessions_one_live ON sessions (tenant, thread_id) WHERE live;
CREATE INDEX sessions_by_thread ON sessions (tenant, thread_id, id);
CREATE INDEX sessions_by_spawner ON sessions (tenant, spawned_by) WHERE spawned_by IS NOT NULL;

ALTER TABLE inbox
    ADD COLUMN number    bigint GENERATED ALWAYS AS IDENTITY,
    ADD COLUMN source    text,                              -- the session whose outcome this message brings
    ADD COLUMN visible   boolean NOT NULL DEFAULT true,
    ADD COLUMN wake      boolean NOT NULL DEFAULT true,
    ADD COLUMN taken_by  text;                              -- the session whose context it entered
CREATE INDEX inbox_waiting ON inbox (tenant, conversation_id) WHERE taken_by IS NULL;

-- The conversation's undelivered outcomes: references, unique by source. Content is read when it is rendered.
CREATE TABLE mailbox (
    tenant            text        NOT NULL,
    message_id        text        NOT NULL,
    conversation_id   text        NOT NULL,
    thread_id         text        NOT NULL,                 -- of the recipient
    source_session_id text        NOT NULL,
    source_type       text        NOT NULL,                 -- subagent_result | subagent_failed
    subagent_name     text        NOT NULL,
    number            bigint      GENERATED ALWAYS AS IDENTITY,
    created_at        timestamptz NOT NULL DEFAULT now(),
    delivered_to      text,
    given_back_by     text,                                 -- the session that had it last and committed nothing
    PRIMARY KEY (tenant, message_id),
    UNIQUE (tenant, source_session_id)
);
CREATE INDEX mailbox_by_conversation ON mailbox (tenant, conversation_id, number);
