-- Whether an event is published beyond its own session: in the feed of its tenant.
CREATE OR REPLACE FUNCTION is_notable(p_type text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_type IN ('task_started', 'task_completed', 'task_failed', 'task_cancelled', 'mailbox_updated',
                      'input_required', 'input_received', 'input_reminder', 'input_escalated', 'budget_low', 'anomaly', 'context_lost')
$$;
