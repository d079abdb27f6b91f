-- Bounds: budgets that the sessions of a conversation share, what watchers were told once, and verdicts.

CREATE TABLE budgets (
    tenant          text             NOT NULL,
    conversation_id text             NOT NULL,
    deadline        timestamptz,                            -- null: without that limit, as all below
    max_steps       bigint,
    max_tokens      bigint,
    max_cost_usd    double precision,
    max_tool_calls  bigint,
    max_sessions    bigint,
    steps           bigint           NOT NULL DEFAULT 0,    -- used
    tokens          bigint           NOT NULL DEFAULT 0,
    cost_usd        double precision NOT NULL DEFAULT 0,
    tool_calls      bigint           NOT NULL DEFAULT 0,
    sessions        bigint           NOT NULL DEFAULT 0,
    low_percent     integer          NOT NULL DEFAULT 20,
    told            text[]           NOT NULL DEFAULT '{}', -- which budgets watchers know to be low
    PRIMARY KEY (tenant, conversation_id)
) WITH (fillfactor = 50);

-- What a model call under way may use at the most; a line of a session makes one call at a time.
CREATE TABLE reservations (
    tenant          text             NOT NULL,
    session_id      text             NOT NULL,
    line            text             NOT NULL,
    conversation_id text             NOT NULL,
    tokens          bigint           NOT NULL,
    cost_usd        double precision NOT NULL,
    PRIMARY KEY (tenant, session_id, line)
);
CREATE INDEX reservations_by_conversation ON reservations (tenant, conversation_id);

ALTER TABLE sessions
    ADD COLUMN told       text[] NOT NULL DEFAULT '{}',     -- events of which there is one in a session
    ADD COLUMN acceptance text;                             -- JSON: the newest verdict on the acceptance criteria
