-- Adds one entry to a chain of the audit log, in the transaction that it records. A transaction that also writes events
-- locks their counters first and the chain last. domain/audit.py computes the same hash.
CREATE OR REPLACE FUNCTION append_audit(p_tenant text, p_chain text, p_actor text, p_action text, p_session text,
                                        p_subject text, p_input text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    h   audit_heads;
    e   audit;
BEGIN
    INSERT INTO audit_heads AS a (tenant, chain, seq) VALUES (p_tenant, p_chain, 1)
    ON CONFLICT (tenant, chain) DO UPDATE SET seq = a.seq + 1 RETURNING * INTO h;
    e.at := date_trunc('microseconds', clock_timestamp());
    e.actor := coalesce(nullif(p_actor, ''), 'errand');
    e.session_id := coalesce(p_session, '');
    e.subject := coalesce(p_subject, '');
    e.digest := coalesce(encode(sha256(convert_to(p_input, 'UTF8')), 'hex'), '');
    SELECT encode(sha256(convert_to(string_agg(length(part) || ':' || part, '' ORDER BY n), 'UTF8')), 'hex') INTO e.hash
      FROM unnest(ARRAY[h.hash, p_tenant, p_chain, h.seq::text,
                        to_char(e.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                        e.actor, p_action, e.session_id, e.subject, e.digest]) WITH ORDINALITY AS x(part, n);
    INSERT INTO audit (tenant, chain, seq, at, actor, action, session_id, subject, digest, previous, hash)
    VALUES (p_tenant, p_chain, h.seq, e.at, e.actor, p_action, e.session_id, e.subject, e.digest, h.hash, e.hash);
    UPDATE audit_heads SET hash = e.hash WHERE tenant = p_tenant AND chain = p_chain;
END $$;
