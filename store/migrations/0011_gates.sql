-- Gates: the rules that bind whoever approves a call with other arguments, kept with the request.

ALTER TABLE input_requests ADD COLUMN gate text;            -- JSON: what rules match on, and their layers; null: no call
