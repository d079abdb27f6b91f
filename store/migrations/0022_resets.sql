-- Resets: the sessions of one generation share a context; a reset begins the next one, and nothing is deleted.

ALTER TABLE conversations ADD COLUMN generation integer NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN generation integer NOT NULL DEFAULT 0;   -- of its conversation, when it was accepted

CREATE TABLE resets (
    tenant          text        NOT NULL,
    conversation_id text        NOT NULL,
    generation      integer     NOT NULL,                 -- that it begins
    at              timestamptz NOT NULL DEFAULT now(),
    by              text        NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, conversation_id, generation)
);
