-- Documents that are no row of a table, as SQL functions read them: each type has the fields of the model of its name.
CREATE TYPE step_begin AS (
    tenant text, session_id text, run text, idem text, version bigint, step integer, attempt integer, head text,
    take text[], purpose text, events jsonb, again jsonb);
CREATE TYPE attempt_record AS (
    tenant text, id text, attempt text, status text, error text, gone boolean, pause_s double precision);
CREATE TYPE request_settlement AS (tenant text, run text, id text, expired jsonb);

-- How the outcome of a child is delivered is decided when the child is created, and no longer when it ends.
UPDATE sessions SET delivery = 'hold' WHERE spawned_by IS NOT NULL AND delivery IS NULL;
ALTER TABLE sessions ADD CONSTRAINT children_have_a_delivery CHECK (spawned_by IS NULL OR delivery IS NOT NULL);
