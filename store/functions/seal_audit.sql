-- Records the heads of a tenant's chains in the tenant's own chain, so that a chain that was cut short or removed is
-- noticed. One entry per tenant and call, with at most `p_limit` heads; a chain that is being written to waits for the
-- next call.
CREATE OR REPLACE FUNCTION seal_audit(p_limit integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    t      text;
    n      integer;
    heads  text;
    total  integer := 0;
BEGIN
    FOR t IN SELECT DISTINCT tenant FROM audit_heads WHERE seq > sealed AND chain <> '' ORDER BY tenant LOOP
        WITH due AS (
            SELECT chain, seq, hash FROM audit_heads WHERE tenant = t AND seq > sealed AND chain <> ''
             ORDER BY chain LIMIT p_limit FOR UPDATE SKIP LOCKED
        ), done AS (
            UPDATE audit_heads h SET sealed = due.seq FROM due WHERE h.tenant = t AND h.chain = due.chain
        )
        SELECT count(*), string_agg(chain || ' ' || seq || ' ' || hash, E'\n' ORDER BY chain) INTO n, heads FROM due;
        IF n > 0 THEN PERFORM append_audit(t, '', 'errand', 'seal', '', heads, NULL); END IF;
        total := total + n;
    END LOOP;
    RETURN total;
END $$;
