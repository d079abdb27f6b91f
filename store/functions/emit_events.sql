-- Appends events of a conversation; a `mailbox_updated` among them gets the count as of this transaction.
CREATE OR REPLACE FUNCTION emit_events(p_tenant text, p_conversation text, p_events jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM append_events('', false, (
        SELECT coalesce(jsonb_agg(
                   CASE WHEN e ->> 'type' = 'mailbox_updated'
                        THEN jsonb_set(e, '{data}', to_jsonb(
                                 jsonb_build_object('pending_count', (SELECT count(*) FROM held_mail(p_tenant, p_conversation)))::text))
                        ELSE e END ORDER BY n), '[]')
          FROM jsonb_array_elements(p_events) WITH ORDINALITY AS x(e, n)));
END $$;
