-- Notifications: who wants to be told of what, the outbox of what is to be told, and the feed of a tenant.

CREATE TABLE subscriptions (
    tenant        text        NOT NULL,
    id            text        NOT NULL,
    name          text        NOT NULL,
    channel       text        NOT NULL,                   -- webhook | slack | email | push
    target        text        NOT NULL,                   -- a URL, which may hold a token, or an e-mail address
    events        text[]      NOT NULL,
    every_task    boolean     NOT NULL,                   -- false: only tasks that name it
    secret        text,                                   -- signs webhooks
    old_secret    text,                                   -- signs too, until old_until
    old_until     timestamptz,
    status        text        NOT NULL DEFAULT 'active',  -- active | disabled
    failing_since timestamptz,
    last_error    text,
    created_by    text        NOT NULL DEFAULT '',
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id),
    UNIQUE (tenant, name)
);

-- One event for one subscription. The body is fixed when the event is written, so every attempt sends the same bytes.
CREATE TABLE deliveries (
    tenant          text        NOT NULL,
    id              text        NOT NULL,
    subscription_id text        NOT NULL,
    event           text        NOT NULL,
    session_id      text,
    seq             bigint,
    body            text        NOT NULL,                   -- JSON
    status          text        NOT NULL DEFAULT 'pending', -- pending | delivered | failed
    dispatched      boolean     NOT NULL DEFAULT false,     -- its workflow was started
    attempts        integer     NOT NULL DEFAULT 0,
    last_try        text,                                   -- workflow run and activity of the attempt counted last
    last_error      text,
    next_at         timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    begun_at        timestamptz NOT NULL DEFAULT now(),     -- of the present row of attempts: a resend begins another
    delivered_at    timestamptz,
    PRIMARY KEY (tenant, id),
    UNIQUE (tenant, subscription_id, session_id, seq)
);
CREATE INDEX deliveries_pending ON deliveries (created_at) WHERE status = 'pending';
CREATE INDEX deliveries_by_subscription ON deliveries (tenant, subscription_id, id);
CREATE INDEX deliveries_by_session ON deliveries (tenant, session_id);

-- What a tenant's watchers are told, numbered without gaps.
CREATE TABLE notices (
    tenant          text        NOT NULL,
    number          bigint      NOT NULL,
    type            text        NOT NULL,
    session_id      text,
    conversation_id text,
    created_by      text        NOT NULL DEFAULT '',      -- the key whose session it is about
    at              timestamptz NOT NULL,
    data            text        NOT NULL,                 -- JSON
    PRIMARY KEY (tenant, number)
);
CREATE INDEX notices_by_age ON notices (at);
CREATE INDEX notices_by_session ON notices (tenant, session_id);
