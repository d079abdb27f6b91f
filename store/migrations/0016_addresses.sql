-- Addresses: each has one conversation, made when the first message arrives; and the keys of accepted messages.

CREATE TABLE addresses (
    tenant          text        NOT NULL,
    kind            text        NOT NULL,
    key             text        NOT NULL,
    conversation_id text        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, kind, key)
);
CREATE INDEX addresses_by_conversation ON addresses (tenant, conversation_id);

CREATE TABLE address_messages (
    tenant          text        NOT NULL,
    conversation_id text        NOT NULL,
    key             text        NOT NULL,   -- the sender's name for the message; the same is accepted once
    session_id      text        NOT NULL,   -- the session that it became, or that it was given to
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, conversation_id, key)
);
CREATE INDEX address_messages_by_age ON address_messages (created_at);
