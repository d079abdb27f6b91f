-- Subagents that wait for values of their variables: the call that should have started each, until somebody gives them.

CREATE TABLE variable_requests (
    tenant          text        NOT NULL,
    id              text        NOT NULL,
    conversation_id text        NOT NULL,
    thread_id       text        NOT NULL,                  -- of the parent
    session_id      text        NOT NULL,                  -- of the parent
    agent           text        NOT NULL,
    name            text        NOT NULL,
    instance        boolean     NOT NULL,                  -- its name is its own
    needs           text        NOT NULL,                  -- JSON: the variables, and which of them lack a value
    spawn           text        NOT NULL,                  -- JSON: what to ask of the conversation; secrets are encrypted
    status          text        NOT NULL DEFAULT 'open',
    attempts        integer     NOT NULL DEFAULT 0,
    answered_by     text,
    answered_at     timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);
CREATE INDEX variable_requests_by_conversation ON variable_requests (tenant, conversation_id);
CREATE UNIQUE INDEX variable_requests_by_instance ON variable_requests (tenant, thread_id, name)
    WHERE instance AND status <> 'started';
CREATE INDEX variable_requests_answered ON variable_requests (answered_at) WHERE status = 'answered';
