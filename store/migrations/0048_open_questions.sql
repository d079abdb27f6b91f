-- Every message in a channel asks whether its conversation waits for an answer.
CREATE INDEX input_requests_open_by_conversation ON input_requests (tenant, conversation_id) WHERE status = 'open';
