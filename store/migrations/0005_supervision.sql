-- Supervision: what a session waits for from people, and the rules it works under.

CREATE TABLE input_requests (
    tenant          text        NOT NULL,
    id              text        NOT NULL,
    conversation_id text        NOT NULL,
    session_id      text        NOT NULL,
    kind            text        NOT NULL,                   -- clarification | tool_approval | plan_approval | …
    question        text        NOT NULL,
    details         text        NOT NULL DEFAULT '{}',      -- JSON: what a person needs to decide
    answer_schema   text,                                   -- JSON
    status          text        NOT NULL DEFAULT 'open',    -- open | answered | expired | withdrawn
    answer          text,                                   -- JSON
    answered_by     text,
    answered_at     timestamptz,
    heard           boolean     NOT NULL DEFAULT false,     -- its session has gone on from it
    deadline        timestamptz NOT NULL,
    on_expiry       text        NOT NULL,                   -- cancel | deny | default
    default_answer  text,                                   -- JSON
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);
CREATE INDEX input_requests_open ON input_requests (tenant, created_at) WHERE status = 'open';
CREATE INDEX input_requests_by_session ON input_requests (tenant, session_id);

ALTER TABLE sessions
    ADD COLUMN rules             text    NOT NULL DEFAULT '[]',  -- JSON: layers of permission rules, the task's and its parents'
    ADD COLUMN may_ask           boolean NOT NULL DEFAULT false,
    ADD COLUMN approval_required boolean NOT NULL DEFAULT false;
