-- What a thread is about: tags, the person it belongs to, and the arguments that a subagent was created with.
ALTER TABLE threads
    ADD COLUMN tags      text[] NOT NULL DEFAULT '{}',
    ADD COLUMN user_id   text,
    ADD COLUMN arguments text;                             -- JSON
CREATE INDEX threads_by_tag ON threads USING gin (tags);
CREATE INDEX threads_by_user ON threads (tenant, user_id) WHERE user_id IS NOT NULL;

-- Values that were set for a thread while it lived. Those that are secret are encrypted.
ALTER TABLE threads ADD COLUMN variables text;             -- JSON
ALTER TABLE conversations ADD COLUMN variables_set boolean NOT NULL DEFAULT false;

-- What a hook puts into the context in place of a message.
ALTER TABLE inbox ADD COLUMN changed text;                 -- JSON: parts
