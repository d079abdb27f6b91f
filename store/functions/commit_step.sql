-- Commits a model call; `p` is a StepCommit: its messages, its reply for a repeated attempt, the session's figures and its events. Messages
-- that entered the context are marked, with the outcomes they brought. What it used is taken from the tree's budget;
-- of the events in `once` each name is emitted once in a session.
CREATE OR REPLACE FUNCTION commit_step(p jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    t    text := p ->> 'tenant';
    c    sessions := jsonb_populate_record(NULL::sessions, p);   -- the columns that the call sets
    done text;
    news jsonb := p -> 'events';
    rare jsonb;
BEGIN
    SELECT reply INTO done FROM messages WHERE tenant = t AND idem = p ->> 'idem';
    IF done IS NOT NULL THEN RETURN done; END IF;
    PERFORM check_run(t, p ->> 'session_id', p ->> 'run', false, true);
    INSERT INTO messages (tenant, id, parent, session_id, idem, kind, author, line, side, step, body, reply)
    SELECT t, node.id, node.parent, p ->> 'session_id', node.idem, node.kind, node.author, node.line, node.side,
           node.step, node.body, node.reply
      FROM jsonb_populate_recordset(NULL::messages, p -> 'nodes') node;
    UPDATE sessions SET version = c.version, usage = c.usage, retry = NULL,
                        head = CASE WHEN p ->> 'line' = 'main' THEN c.head ELSE head END,
                        progress = coalesce(c.progress, progress), status_text = coalesce(c.status_text, status_text),
                        updated_at = now()
     WHERE tenant = t AND id = p ->> 'session_id' AND version < c.version
       AND status NOT IN ('completed', 'failed', 'cancelled');
    IF jsonb_array_length(p -> 'take') > 0 THEN
        WITH taken AS (
            UPDATE inbox SET taken_by = p ->> 'session_id'
             WHERE tenant = t AND id IN (SELECT jsonb_array_elements_text(p -> 'take')) RETURNING source)
        UPDATE mailbox m SET delivered_to = p ->> 'session_id'
          FROM taken WHERE m.tenant = t AND m.source_session_id = taken.source AND m.delivered_to IS NULL;
    END IF;
    IF jsonb_array_length(p -> 'once') > 0 THEN
        SELECT jsonb_agg(o) INTO rare FROM jsonb_array_elements(p -> 'once') o, sessions s
         WHERE s.tenant = t AND s.id = p ->> 'session_id' AND NOT o ->> 'name' = ANY (s.emitted_once);
        UPDATE sessions SET emitted_once = emitted_once || ARRAY(SELECT o ->> 'name' FROM jsonb_array_elements(rare) o)
         WHERE tenant = t AND id = p ->> 'session_id' AND rare IS NOT NULL;
        news := news || coalesce((SELECT jsonb_agg(o -> 'event') FROM jsonb_array_elements(rare) o), '[]');
    END IF;
    PERFORM settle_budget(t, p ->> 'session_id', p ->> 'line', p -> 'used');
    PERFORM append_events('', false, news);
    RETURN p ->> 'reply';
EXCEPTION WHEN unique_violation THEN
    SELECT reply INTO done FROM messages WHERE tenant = t AND idem = p ->> 'idem';
    RETURN done;
END $$;
