-- Input requests are listed by deadline while they are open, and by the time of their answer afterwards.
DROP INDEX input_requests_open;
CREATE INDEX input_requests_open ON input_requests (tenant, deadline, id) WHERE status = 'open';
CREATE INDEX input_requests_answered ON input_requests (tenant, answered_at, id) WHERE status = 'answered';
