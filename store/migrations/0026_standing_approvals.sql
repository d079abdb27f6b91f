-- Approvals that hold for a whole conversation are read when a call would ask again.

CREATE INDEX input_requests_approved ON input_requests (tenant, conversation_id)
    WHERE kind = 'tool_approval' AND status = 'answered';
