-- Whether a message is in the message tree. `taken_by` is the session that reads it, from its opening on.
ALTER TABLE inbox ADD COLUMN entered boolean NOT NULL DEFAULT false;
UPDATE inbox i SET entered = true FROM sessions s
 WHERE s.tenant = i.tenant AND s.id = i.taken_by AND (s.ended_at IS NOT NULL OR s.head IS DISTINCT FROM s.base_head);
CREATE INDEX inbox_taken ON inbox (tenant, taken_by) WHERE taken_by IS NOT NULL;
