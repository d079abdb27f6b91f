-- Commits a model call; `p` is a StepCommit: its messages, its reply for a repeated attempt, the session's figures and
-- its events. Messages that entered the context are marked, with the outcomes they delivered. Its usage is taken from
-- the tree's budget; an event in `once` is emitted at most once by its name in a session.
CREATE OR REPLACE FUNCTION commit_step(p jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    n    step_commit := jsonb_populate_record(NULL::step_commit, p);
    done text;
    rare once_event[];
BEGIN
    SELECT reply INTO done FROM messages WHERE tenant = n.tenant AND idem = n.idem;
    IF done IS NOT NULL THEN RETURN done; END IF;
    PERFORM check_run(n.tenant, n.session_id, n.run, false, true);
    INSERT INTO messages (tenant, id, parent, session_id, idem, kind, author, line, side, step, body, reply)
    SELECT n.tenant, node.id, node.parent, n.session_id, node.idem, node.kind, node.author, node.line, node.side,
           node.step, node.body, node.reply
      FROM jsonb_populate_recordset(NULL::messages, n.nodes) node;
    UPDATE sessions SET version = n.version, usage = n.usage, retry = NULL,
                        head = CASE WHEN n.line = 'main' THEN n.head ELSE head END,
                        progress = coalesce(n.progress, progress), status_text = coalesce(n.status_text, status_text),
                        updated_at = now()
     WHERE tenant = n.tenant AND id = n.session_id AND version < n.version
       AND status NOT IN ('completed', 'failed', 'cancelled');
    IF cardinality(n.take) > 0 AND NOT EXISTS (   -- else the session ended without this reply, and others read its messages
            SELECT 1 FROM sessions WHERE tenant = n.tenant AND id = n.session_id AND status IN ('completed', 'failed', 'cancelled')) THEN
        WITH taken AS (
            UPDATE inbox SET taken_by = n.session_id, entered = true
             WHERE tenant = n.tenant AND id = ANY (n.take) AND coalesce(taken_by, n.session_id) = n.session_id
            RETURNING source)
        UPDATE mailbox m SET delivered_to = n.session_id
          FROM taken WHERE m.tenant = n.tenant AND m.source_session_id = taken.source AND m.delivered_to IS NULL;
    END IF;
    IF jsonb_array_length(n.once) > 0 THEN
        SELECT array_agg(o) INTO rare FROM jsonb_populate_recordset(NULL::once_event, n.once) o, sessions s
         WHERE s.tenant = n.tenant AND s.id = n.session_id AND NOT o.name = ANY (s.emitted_once);
        IF rare IS NOT NULL THEN
            UPDATE sessions SET emitted_once = emitted_once || ARRAY(SELECT o.name FROM unnest(rare) o)
             WHERE tenant = n.tenant AND id = n.session_id;
            n.events := n.events || (SELECT jsonb_agg(o.event) FROM unnest(rare) o);
        END IF;
    END IF;
    PERFORM settle_budget(n.tenant, n.session_id, n.line, n.used);
    PERFORM append_events('', false, n.events);
    RETURN n.reply;
EXCEPTION WHEN unique_violation THEN
    SELECT reply INTO done FROM messages WHERE tenant = n.tenant AND idem = n.idem;
    IF done IS NULL THEN RAISE; END IF;
    RETURN done;
END $$;
