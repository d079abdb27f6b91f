CREATE OR REPLACE FUNCTION pending_mail(p_tenant text, p_conversation text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT count(*) FROM held_mail(p_tenant, p_conversation)
$$;
