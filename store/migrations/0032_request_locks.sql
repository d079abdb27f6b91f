-- Requests that are handled now and must not be handled twice at once, also not by another API process. A row whose
-- time is over belongs to a process that died.
CREATE TABLE request_locks (
    tenant text        NOT NULL,
    name   text        NOT NULL,
    holder text        NOT NULL,
    until  timestamptz NOT NULL,
    PRIMARY KEY (tenant, name)
);
