-- Looks a key up and takes one request from its allowance of `p_rate` per minute, shared by all processes. It runs with
-- its owner's rights, since the tenant is not known before. Returns null for a key that is unknown, wrong, expired or
-- revoked; such a call takes nothing.
CREATE OR REPLACE FUNCTION use_key(p_id text, p_digest text, p_rate double precision) RETURNS jsonb LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    k     api_keys;
    each  interval := make_interval(secs => 60.0 / p_rate);
    wait  double precision := 0;
BEGIN
    SELECT * INTO k FROM api_keys
     WHERE id = p_id AND digest = p_digest AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp());
    IF NOT FOUND THEN RETURN NULL; END IF;
    INSERT INTO key_rates AS r (tenant, id, full_at) VALUES (k.tenant, k.id, clock_timestamp() + each)
    ON CONFLICT (tenant, id) DO UPDATE SET full_at = greatest(r.full_at, clock_timestamp()) + each
     WHERE greatest(r.full_at, clock_timestamp()) + each <= clock_timestamp() + interval '1 minute';
    IF NOT FOUND THEN
        SELECT extract(epoch FROM full_at + each - interval '1 minute' - clock_timestamp()) INTO wait
          FROM key_rates WHERE tenant = k.tenant AND id = k.id;
        wait := greatest(wait, 0.001);
    END IF;
    RETURN jsonb_build_object('tenant', k.tenant, 'id', k.id, 'name', k.name, 'digest', k.digest, 'rights', k.rights,
                              'wait', wait);
END $$;
