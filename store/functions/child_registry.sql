-- The children of a thread that its subagent tools started, each as a RegistryEntry of
-- domain/conversations/subagents.py: all that can be sent messages, and of the others those that run or ended last.
CREATE OR REPLACE FUNCTION child_registry(p_tenant text, p_conversation text, p_thread text) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object(
               'reference', c.id, 'name', coalesce(s.subagent_name, s.agent), 'agent', c.agent, 'title', s.title,
               'description', terms.description, 'resumable', terms.resumable,
               'blocking', terms.blocking, 'thread_name', c.name,
               'spawn_group_id', terms.spawn_group_id, 'created_at', c.created_at,
               'parent_communication', terms.parent_communication,
               'status', CASE WHEN c.terminated_at IS NOT NULL OR v.status = 'terminated' THEN 'terminated'
                              WHEN s.status IN ('submitted', 'working', 'input_required')
                              THEN coalesce(s.status_text, 'running')
                              WHEN terms.parent_communication = 'explicit' THEN coalesce(s.status_text, s.status)
                              ELSE s.status END) ORDER BY c.created_at, c.id), '[]')
      FROM (SELECT * FROM threads WHERE tenant = p_tenant AND conversation_id = p_conversation
               AND parent_thread_id = p_thread AND registered ORDER BY created_at DESC LIMIT 200) c
      JOIN conversations v ON v.tenant = p_tenant AND v.id = p_conversation
      JOIN LATERAL (SELECT * FROM sessions k WHERE k.tenant = p_tenant AND k.thread_id = c.id
                     ORDER BY k.created_at DESC LIMIT 1) s ON true
      CROSS JOIN LATERAL jsonb_populate_record(NULL::subagent_terms, s.subagent::jsonb) terms
$$;
