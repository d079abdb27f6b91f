-- Records the result of one attempt of a delivery; recorded twice, it counts once. `p` is an AttemptRecord. A
-- subscription is disabled when its address is gone, or when a delivery failed for good and none succeeded since it began.
CREATE OR REPLACE FUNCTION record_attempt(p jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    t   text := p ->> 'tenant';
    d   deliveries;
    sub subscriptions;
BEGIN
    -- the subscription first: its removal ends its deliveries
    SELECT * INTO sub FROM subscriptions WHERE tenant = t
       AND id = (SELECT subscription_id FROM deliveries WHERE tenant = t AND id = p ->> 'id') FOR UPDATE;
    SELECT * INTO d FROM deliveries WHERE tenant = t AND id = p ->> 'id' FOR UPDATE;
    IF d.status <> 'pending' OR d.last_try = p ->> 'attempt' THEN RETURN d.status; END IF;
    UPDATE deliveries SET attempts = attempts + 1, last_try = p ->> 'attempt', status = p ->> 'status',
                          last_error = p ->> 'error',
                          next_at = now() + make_interval(secs => (p ->> 'pause_s')::double precision),
                          delivered_at = CASE p ->> 'status' WHEN 'delivered' THEN now() END
     WHERE tenant = t AND id = d.id;
    IF p ->> 'status' = 'delivered' THEN
        UPDATE subscriptions SET failing_since = NULL, last_error = NULL
         WHERE tenant = t AND id = sub.id AND failing_since IS NOT NULL;
    ELSE
        UPDATE subscriptions SET failing_since = coalesce(failing_since, now()), last_error = p ->> 'error'
         WHERE tenant = t AND id = sub.id;
        IF sub.status = 'active' AND ((p ->> 'gone')::boolean OR (p ->> 'status' = 'failed' AND NOT EXISTS (
               SELECT 1 FROM deliveries o WHERE o.tenant = t AND o.subscription_id = sub.id
                  AND o.delivered_at >= d.begun_at))) THEN
            UPDATE subscriptions SET status = 'disabled' WHERE tenant = t AND id = sub.id;
            PERFORM give_notice(jsonb_build_array(jsonb_build_object(
                'tenant', t, 'type', 'subscription_disabled', 'at', now(),
                'data', jsonb_build_object('subscription_id', sub.id, 'name', sub.name, 'channel', sub.channel,
                                           'error', p ->> 'error')::text)));
        END IF;
    END IF;
    RETURN p ->> 'status';
END $$;
