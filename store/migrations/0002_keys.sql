-- API keys: only a hash is kept. The tenant follows from the key, so a key's id is unique over all tenants.

CREATE TABLE api_keys (
    tenant      text        NOT NULL,
    id          text        NOT NULL UNIQUE,
    name        text        NOT NULL,
    digest      text        NOT NULL,              -- SHA-256 of the secret, in hex
    rights      text[]      NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz,
    revoked_at  timestamptz,
    PRIMARY KEY (tenant, id)
);

-- When a key's allowance is next full. Losing this in a crash costs nothing, so it is not logged and never waits for a disk.
CREATE UNLOGGED TABLE key_rates (
    tenant      text        NOT NULL,
    id          text        NOT NULL,
    full_at     timestamptz NOT NULL,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 50);

-- The tools each worker has, so that a definition can be checked without asking one.
ALTER TABLE workers ADD COLUMN tools text[] NOT NULL DEFAULT '{}';

CREATE INDEX idempotency_by_age ON idempotency (created_at);
