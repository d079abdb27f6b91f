-- Records the result of one attempt of a delivery; a repetition is ignored. `p` is an AttemptRecord. A subscription is
-- disabled when its address is gone, or when a delivery failed permanently and none succeeded since it began. A reply
-- that failed permanently makes way for the next one of its address, and a notice says so.
CREATE OR REPLACE FUNCTION record_attempt(p jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    n   attempt_record := jsonb_populate_record(NULL::attempt_record, p);
    d   deliveries;
    sub subscriptions;
BEGIN
    -- Lock the subscription first, because its removal ends its deliveries in this order.
    SELECT * INTO sub FROM subscriptions WHERE tenant = n.tenant
       AND id = (SELECT subscription_id FROM deliveries WHERE tenant = n.tenant AND id = n.id) FOR UPDATE;
    SELECT * INTO d FROM deliveries WHERE tenant = n.tenant AND id = n.id FOR UPDATE;
    IF d.status <> 'pending' OR d.last_try = n.attempt THEN RETURN d.status; END IF;
    UPDATE deliveries SET attempts = attempts + 1, last_try = n.attempt, status = n.status,
                          last_error = n.error, next_at = now() + make_interval(secs => n.pause_s),
                          delivered_at = CASE WHEN n.status = 'delivered' THEN now() END
     WHERE tenant = n.tenant AND id = d.id;
    IF n.status = 'delivered' THEN
        UPDATE subscriptions SET failing_since = NULL, last_error = NULL
         WHERE tenant = n.tenant AND id = sub.id AND failing_since IS NOT NULL;
    ELSE
        UPDATE subscriptions SET failing_since = coalesce(failing_since, now()), last_error = n.error
         WHERE tenant = n.tenant AND id = sub.id;
        IF sub.status = 'active' AND (n.gone OR (n.status = 'failed' AND NOT EXISTS (
               SELECT 1 FROM deliveries o WHERE o.tenant = n.tenant AND o.subscription_id = sub.id
                  AND o.delivered_at >= d.begun_at))) THEN
            UPDATE subscriptions SET status = 'disabled' WHERE tenant = n.tenant AND id = sub.id;
            PERFORM give_notice(jsonb_build_array(jsonb_build_object(
                'tenant', n.tenant, 'type', 'subscription_disabled', 'at', now(),
                'data', jsonb_build_object('subscription_id', sub.id, 'name', sub.name, 'channel', sub.channel,
                                           'error', n.error)::text)));
        END IF;
    END IF;
    IF n.status = 'failed' AND d.conversation_id IS NOT NULL THEN
        PERFORM give_notice(jsonb_build_array(jsonb_build_object(
            'tenant', n.tenant, 'conversation_id', d.conversation_id, 'type', 'reply_failed', 'at', now(),
            'data', jsonb_build_object('delivery_id', d.id, 'task_id', d.session_id, 'error', n.error,
                                       'name', d.body::jsonb #> '{data,connector}',
                                       'channel_id', d.body::jsonb #> '{data,channel_id}',
                                       'user_id', d.body::jsonb #> '{data,user_id}')::text)));
    END IF;
    RETURN n.status;
END $$;
