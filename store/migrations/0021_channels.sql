-- Channels: connectors, and where the conversation of each address sends its answers.

CREATE TABLE connectors (
    tenant      text        NOT NULL,
    id          text        NOT NULL UNIQUE,              -- names the connector, and so its tenant, to the service
    name        text        NOT NULL,
    kind        text        NOT NULL,                     -- webhook | slack | email
    agent       text        NOT NULL,
    target      text        NOT NULL DEFAULT '',          -- what people see of where answers are sent
    secrets     text        NOT NULL DEFAULT '{}',        -- encrypted JSON: target, signing, token
    debounce_ms integer     NOT NULL DEFAULT 0,           -- a message waits so long for others, to be answered together
    merge       boolean     NOT NULL DEFAULT false,       -- messages that wait are answered together
    created_by  text        NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, name)
);

CREATE TABLE channels (
    tenant          text        NOT NULL,
    conversation_id text        NOT NULL,
    connector       text        NOT NULL,                 -- by name, so that one that is made anew answers on
    channel_id      text        NOT NULL,
    user_id         text        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, conversation_id)
);
