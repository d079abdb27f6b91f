-- The calls of running sessions that were tried again, with their newest attempts.
CREATE TABLE call_attempts (
    tenant     text    NOT NULL,
    session_id text    NOT NULL,
    call       text    NOT NULL,   -- run and id of the activity
    attempt    integer NOT NULL,
    PRIMARY KEY (tenant, session_id, call)
);
-- The attempt that emits an event; null: it is not part of a call.
ALTER TYPE event_row ADD ATTRIBUTE call text;
ALTER TYPE event_row ADD ATTRIBUTE attempt integer;
