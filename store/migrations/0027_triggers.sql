-- Triggers, the events that arrived or that agents emitted, and who subscribed to them.

CREATE TABLE triggers (
    tenant     text        NOT NULL,
    id         text        NOT NULL UNIQUE,   -- names the trigger, and so its tenant; never used again
    name       text        NOT NULL,
    rules      text        NOT NULL,          -- JSON: TriggerRules
    session    text,                          -- JSON: the NewSession that an event becomes; null: events are only waited for
    prompt     text        NOT NULL DEFAULT '',
    secret     text        NOT NULL,          -- encrypted
    created_by text        NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    deleted_at timestamptz,
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX triggers_by_name ON triggers (tenant, name) WHERE deleted_at IS NULL;
CREATE INDEX triggers_of_any_tenant ON triggers (name) WHERE deleted_at IS NULL;

CREATE TABLE external_events (
    tenant          text        NOT NULL,
    source          text        NOT NULL,     -- the id of a trigger, or 'emit'
    event_id        text        NOT NULL,     -- by which a repeat is known
    type            text        NOT NULL DEFAULT '',
    key             text,                     -- by which a wait finds it
    body            text,                     -- what the agent reads; only until a session has it
    outcome         text        NOT NULL DEFAULT 'kept',
    session_id      text,
    conversation_id text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, source, event_id)
);
CREATE INDEX external_events_kept ON external_events (tenant, key, created_at) WHERE outcome = 'kept';
CREATE INDEX external_events_by_time ON external_events (tenant, source, created_at);

CREATE TABLE event_subscriptions (
    tenant          text        NOT NULL,
    thread_id       text        NOT NULL,
    pattern         text        NOT NULL,
    conversation_id text        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, thread_id, pattern)
);

ALTER TABLE input_requests ADD COLUMN event_key text;   -- the event with this key answers it
CREATE UNIQUE INDEX input_requests_by_event ON input_requests (tenant, event_key) WHERE status = 'open' AND event_key IS NOT NULL;
