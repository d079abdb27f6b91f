-- The first schema: the tenant stands in every table and every key.

CREATE TABLE agent_versions (
    owner       text        NOT NULL,              -- a tenant, or '*' for the definitions shipped as files
    name        text        NOT NULL,
    version     integer     NOT NULL,
    digest      text        NOT NULL,              -- of the definition; an unchanged one makes no new version
    definition  text        NOT NULL,              -- JSON
    created_by  text        NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (owner, name, version)
);

CREATE TABLE conversations (
    tenant      text        NOT NULL,
    id          text        NOT NULL,
    title       text        NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);

-- A projection of the Session workflow: `version` only rises, a terminal status never changes.
CREATE TABLE sessions (
    tenant            text        NOT NULL,
    id                text        NOT NULL,
    conversation_id   text        NOT NULL,
    thread_id         text        NOT NULL,
    workspace_id      text        NOT NULL,
    parent_session_id text,
    session_type      text        NOT NULL DEFAULT 'agent',
    spawned_by        text,
    trigger           text        NOT NULL DEFAULT 'api',
    agent_owner       text        NOT NULL,
    agent             text        NOT NULL,
    agent_version     integer     NOT NULL,
    models            text[]      NOT NULL,
    title             text        NOT NULL DEFAULT '',
    spec              text        NOT NULL,        -- JSON: the task as submitted
    limits            text        NOT NULL,        -- JSON
    deadline          timestamptz NOT NULL,
    base_head         text,                        -- the node this session continues from
    inbox             text[]      NOT NULL DEFAULT '{}',
    status            text        NOT NULL DEFAULT 'submitted',
    reason            text,
    partial           boolean     NOT NULL DEFAULT false,
    error_type        text,
    error             text,
    output            text,
    head              text,
    version           bigint      NOT NULL DEFAULT 0,
    step              integer     NOT NULL DEFAULT 0,
    progress          text        NOT NULL DEFAULT '',
    plan              text,                        -- JSON
    retry             text,                        -- JSON: attempt, reason and next time of a call that is backing off
    usage             text        NOT NULL DEFAULT '{}',
    cancel_requested  text,                        -- JSON: reason, by, note, at
    created_by        text        NOT NULL DEFAULT '',
    created_at        timestamptz NOT NULL DEFAULT now(),
    started_at        timestamptz,
    updated_at        timestamptz NOT NULL DEFAULT now(),
    ended_at          timestamptz,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 70);

CREATE INDEX sessions_by_conversation ON sessions (tenant, conversation_id, id);
CREATE INDEX sessions_live ON sessions (tenant, created_by) WHERE status IN ('submitted', 'working', 'input_required');
CREATE INDEX sessions_by_agent ON sessions (tenant, agent, id);

-- Messages waiting for a thread; they enter the tree when a model call takes them.
CREATE TABLE inbox (
    tenant          text        NOT NULL,
    id              text        NOT NULL,
    conversation_id text        NOT NULL,
    thread_id       text        NOT NULL,
    kind            text        NOT NULL,
    author          text        NOT NULL DEFAULT '',
    parts           text        NOT NULL,          -- JSON
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);

-- The immutable message tree. `idem` makes every append repeatable.
CREATE TABLE messages (
    tenant      text        NOT NULL,
    id          text        NOT NULL,
    parent      text,
    session_id  text        NOT NULL,
    idem        text        NOT NULL,
    kind        text        NOT NULL,
    author      text        NOT NULL DEFAULT '',
    line        text        NOT NULL DEFAULT 'main',
    step        integer     NOT NULL,
    body        text        NOT NULL,              -- JSON
    reply       text,                              -- JSON: what the model call answered to the workflow
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id),
    UNIQUE (tenant, idem)
);
CREATE INDEX messages_by_session ON messages (tenant, session_id, id);

-- A tool call is claimed before its effect; holder and attempt fence off whoever was superseded.
CREATE TABLE tool_calls (
    tenant      text        NOT NULL,
    node        text        NOT NULL,              -- the assistant node that asked
    call_index  integer     NOT NULL,
    session_id  text        NOT NULL,
    tool        text        NOT NULL,
    effect      text        NOT NULL,
    holder      text        NOT NULL,              -- workflow run and activity
    attempt     integer     NOT NULL,
    state       text        NOT NULL DEFAULT 'started',   -- started | ok | failed | unknown | cancelled
    result      text        NOT NULL DEFAULT '',
    started_at  timestamptz NOT NULL DEFAULT now(),
    ended_at    timestamptz,
    PRIMARY KEY (tenant, node, call_index)
);
CREATE INDEX tool_calls_by_session ON tool_calls (tenant, session_id);

CREATE TABLE event_counters (
    tenant  text    NOT NULL,
    scope   text    NOT NULL,                      -- 's/<session>' or 'c/<conversation>'
    last    bigint  NOT NULL DEFAULT 0,
    closed  boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant, scope)
) WITH (fillfactor = 50);

CREATE TABLE events (
    tenant          text        NOT NULL,
    session_id      text        NOT NULL,
    seq             bigint      NOT NULL,
    conversation_id text        NOT NULL,
    conv_seq        bigint      NOT NULL,
    type            text        NOT NULL,
    at              timestamptz NOT NULL,
    data            text        NOT NULL,          -- JSON
    batch           text        NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, session_id, seq)
);
CREATE UNIQUE INDEX events_by_conversation ON events (tenant, conversation_id, conv_seq);

CREATE TABLE blobs (
    tenant  text   NOT NULL,
    sha256  text   NOT NULL,
    size    bigint NOT NULL,
    content bytea  NOT NULL,
    PRIMARY KEY (tenant, sha256)
);

CREATE TABLE files (
    tenant      text        NOT NULL,
    id          text        NOT NULL,
    sha256      text        NOT NULL,
    size        bigint      NOT NULL,
    name        text        NOT NULL,
    media_type  text        NOT NULL,
    type        text        NOT NULL DEFAULT 'file',
    description text        NOT NULL DEFAULT '',
    session_id  text,                              -- the session that saved it as an artifact
    created_by  text        NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);
CREATE INDEX files_by_session ON files (tenant, session_id, id);

-- What a workspace holds: the newest manifest, from which another worker restores it.
CREATE TABLE workspaces (
    tenant      text        NOT NULL,
    id          text        NOT NULL,
    version     bigint      NOT NULL DEFAULT 0,
    manifest    text        NOT NULL DEFAULT '{}', -- JSON: path -> {sha256, size, mode}
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);

-- Who works: each worker says so every few seconds, with the sandbox it found.
CREATE TABLE workers (
    id          text        PRIMARY KEY,
    sandbox     text        NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    seen_at     timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE idempotency (
    tenant      text        NOT NULL,
    key         text        NOT NULL,
    digest      text        NOT NULL,              -- of route and body
    status      integer     NOT NULL,
    response    text        NOT NULL,              -- JSON
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, key)
);
