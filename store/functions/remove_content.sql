-- Removes texts and files of a conversation whose retention is over. Status, reason, figures and times of its sessions
-- stay, and so does the audit log, which holds digests only. False: one of its sessions is live or must be kept longer,
-- or another conversation continues from it. Blobs that may be unused now are listed in loose_blobs for a sweep.
CREATE OR REPLACE FUNCTION remove_content(p_tenant text, p_conversation text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    ids     text[];
    spaces  text[];
    uploads text[];
BEGIN
    PERFORM 1 FROM conversations WHERE tenant = p_tenant AND id = p_conversation FOR NO KEY UPDATE;  -- so that it accepts nothing
    SELECT array_agg(id), array_agg(DISTINCT workspace_id) INTO ids, spaces FROM sessions
     WHERE tenant = p_tenant AND conversation_id = p_conversation AND content_removed_at IS NULL;
    IF ids IS NULL OR NOT removable(p_tenant, p_conversation) THEN RETURN false; END IF;

    DELETE FROM messages WHERE tenant = p_tenant AND session_id = ANY(ids);
    DELETE FROM events WHERE tenant = p_tenant AND session_id = ANY(ids) AND type <> 'usage_updated';
    DELETE FROM inbox WHERE tenant = p_tenant AND conversation_id = p_conversation;
    DELETE FROM queued_files WHERE tenant = p_tenant AND session_id = ANY(ids);
    DELETE FROM mailbox WHERE tenant = p_tenant AND conversation_id = p_conversation;
    DELETE FROM variable_requests WHERE tenant = p_tenant AND conversation_id = p_conversation;
    UPDATE notices SET data = '{}' WHERE tenant = p_tenant AND session_id = ANY(ids);   -- the feed's numbers have no gaps
    DELETE FROM deliveries WHERE tenant = p_tenant AND session_id = ANY(ids) AND status <> 'pending';
    UPDATE deliveries SET status = 'failed', last_error = 'Its content was removed before it got through.', body = '',
                          next_at = NULL
     WHERE tenant = p_tenant AND session_id = ANY(ids);
    UPDATE input_requests SET question = '', details = '{}', answer_schema = NULL, answer = NULL, default_answer = NULL,
                              gate = NULL
     WHERE tenant = p_tenant AND session_id = ANY(ids);
    UPDATE face_requests SET request = '{}' WHERE tenant = p_tenant AND session_id = ANY(ids);
    UPDATE tool_calls SET description = '', result = '', sources = '[]', shown = '[]', remote = NULL WHERE tenant = p_tenant AND session_id = ANY(ids);

    WITH gone AS (DELETE FROM file_uses WHERE tenant = p_tenant AND session_id = ANY(ids) RETURNING file_id)
    SELECT array_agg(DISTINCT file_id) INTO uploads FROM gone;
    WITH gone AS (
        DELETE FROM files f WHERE tenant = p_tenant
           -- An artifact that another session was given stays until that session's content goes.
           AND (session_id = ANY(ids) OR (id = ANY(uploads) AND NOT EXISTS (
                   SELECT 1 FROM sessions o WHERE o.tenant = f.tenant AND o.id = f.session_id
                      AND o.content_removed_at IS NULL)))
           AND NOT EXISTS (SELECT 1 FROM file_uses u WHERE u.tenant = f.tenant AND u.file_id = f.id)
        RETURNING sha256
    ), emptied AS (
        DELETE FROM workspaces WHERE tenant = p_tenant AND id = ANY(spaces) RETURNING manifest
    ), undone AS (
        DELETE FROM workspace_changes WHERE tenant = p_tenant AND id = ANY(spaces) RETURNING undo
    )
    INSERT INTO loose_blobs (tenant, sha256)
    SELECT p_tenant, sha256 FROM gone
    UNION SELECT p_tenant, entry ->> 'sha256' FROM emptied, LATERAL jsonb_path_query(manifest::jsonb, '$.*') entry
           WHERE entry ->> 'sha256' IS NOT NULL
    UNION SELECT p_tenant, entry ->> 'sha256' FROM undone, LATERAL jsonb_path_query(undo::jsonb, '$.*') entry
           WHERE entry ->> 'sha256' IS NOT NULL
    ON CONFLICT DO NOTHING;

    UPDATE sessions SET title = '', spec = '{}', output = NULL, error = NULL, progress = '', status_text = NULL, plan = NULL, inbox = '{}',
                        acceptance = NULL, external_tools = '[]', variables = '{}', missing = '{}', task_terms = NULL,
                        head = NULL, base_head = NULL, committed = false, typed = false, content_removed_at = now(),
                        cancel_requested = (cancel_requested::jsonb || '{"note": ""}')::text
     WHERE tenant = p_tenant AND id = ANY(ids);
    -- definitions that single sessions have
    UPDATE agent_versions SET definition = (definition::jsonb - 'mcp_servers' || '{"prompt": "(removed)"}')::text
     WHERE owner IN (SELECT 'rerun/' || unnest(ids));
    UPDATE threads SET tags = '{}', user_id = NULL, arguments = NULL, variables = NULL
     WHERE tenant = p_tenant AND conversation_id = p_conversation;
    UPDATE conversations SET title = '', metadata = '{}' WHERE tenant = p_tenant AND id = p_conversation;
    PERFORM append_audit(p_tenant, p_conversation, 'errand', 'remove_content', '', cardinality(ids) || ' sessions', NULL);
    RETURN true;
END $$;
