-- Accepts several sessions in one transaction; each has its own result, as accept_session returns it.
CREATE OR REPLACE FUNCTION accept_sessions(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    one     jsonb;
    answers jsonb := '[]';
BEGIN
    FOR one IN SELECT value FROM jsonb_array_elements(p) WITH ORDINALITY ORDER BY ordinality LOOP
        answers := answers || jsonb_build_array(accept_session(one));
    END LOOP;
    RETURN answers;
END $$;
