-- The record: what was done and what it was based on, the audit log, and what is kept for how long.

ALTER TABLE tool_calls
    ADD COLUMN kind        text,                            -- in the ledger of effects; null: it touches nothing
    ADD COLUMN description text    NOT NULL DEFAULT '',
    ADD COLUMN dry         boolean NOT NULL DEFAULT false,  -- described, not done
    ADD COLUMN sources     text    NOT NULL DEFAULT '[]';   -- JSON: what it read, with hashes and times

ALTER TABLE sessions
    ADD COLUMN dry_run            boolean NOT NULL DEFAULT false,
    ADD COLUMN typed              boolean NOT NULL DEFAULT false,  -- its output is JSON that fits its agent's output_schema
    ADD COLUMN retention_ms       bigint  NOT NULL DEFAULT 2592000000,
    ADD COLUMN keep_until         timestamptz,                     -- of its content; null until it ends
    ADD COLUMN content_removed_at timestamptz;
UPDATE sessions SET keep_until = ended_at + interval '30 days' WHERE ended_at IS NOT NULL;
CREATE INDEX sessions_to_clear ON sessions (keep_until) WHERE content_removed_at IS NULL AND keep_until IS NOT NULL;
CREATE INDEX sessions_by_parent ON sessions (tenant, parent_session_id) WHERE parent_session_id IS NOT NULL;

-- Which sessions were given an uploaded file; the last of them takes it along.
CREATE TABLE file_uses (
    tenant      text NOT NULL,
    file_id     text NOT NULL,
    session_id  text NOT NULL,
    PRIMARY KEY (tenant, file_id, session_id)
);
CREATE INDEX file_uses_by_session ON file_uses (tenant, session_id);

-- Bytes that lost a user and may be nobody's now. One that was put again lately may be about to be used.
CREATE TABLE loose_blobs (
    tenant  text NOT NULL,
    sha256  text NOT NULL,
    PRIMARY KEY (tenant, sha256)
);
ALTER TABLE blobs ADD COLUMN put_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX files_by_content ON files (tenant, sha256);

-- Append-only. Each entry holds the hash of the one before it in its chain: a conversation's, or '' for the tenant's own.
-- No words of callers or agents stand here, only digests of them, so that nothing need ever be taken out again.
CREATE TABLE audit (
    tenant      text        NOT NULL,
    chain       text        COLLATE "C" NOT NULL,          -- so that the tenant's own comes first everywhere
    seq         bigint      NOT NULL,
    at          timestamptz NOT NULL,
    actor       text        NOT NULL,
    action      text        NOT NULL,
    session_id  text        NOT NULL DEFAULT '',
    subject     text        NOT NULL DEFAULT '',
    digest      text        NOT NULL DEFAULT '',            -- SHA-256 of the inputs, in hex
    previous    text        NOT NULL,
    hash        text        NOT NULL,
    number      bigint      GENERATED ALWAYS AS IDENTITY,   -- for pages over all chains
    PRIMARY KEY (tenant, chain, seq)
);
CREATE INDEX audit_by_number ON audit (tenant, number);
CREATE INDEX audit_by_session ON audit (tenant, session_id, number) WHERE session_id <> '';

CREATE TABLE audit_heads (
    tenant  text   NOT NULL,
    chain   text   NOT NULL,
    seq     bigint NOT NULL DEFAULT 0,
    hash    text   NOT NULL DEFAULT '',
    sealed  bigint NOT NULL DEFAULT 0,                      -- the last one that the tenant's own chain vouches for
    PRIMARY KEY (tenant, chain)
) WITH (fillfactor = 50);
CREATE INDEX audit_unsealed ON audit_heads (tenant, chain) WHERE seq > sealed AND chain <> '';

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER never_empty BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Words from outside for a session at work; those that open one are part of its submission. Deferred, so that the lock of
-- the chain is taken last, whatever else their transaction does.
CREATE FUNCTION audit_message() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    m inbox%ROWTYPE := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    PERFORM append_audit(m.tenant, m.conversation_id, m.author,
                         CASE TG_OP WHEN 'DELETE' THEN 'withdraw_message' ELSE 'message' END,
                         (SELECT id FROM sessions WHERE tenant = m.tenant AND thread_id = m.thread_id AND live), m.id, m.parts);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER audited AFTER INSERT ON inbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.taken_by IS NULL AND NEW.source IS NULL) EXECUTE FUNCTION audit_message();
CREATE CONSTRAINT TRIGGER withdrawal_audited AFTER DELETE ON inbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.taken_by IS NULL AND OLD.source IS NULL) EXECUTE FUNCTION audit_message();
