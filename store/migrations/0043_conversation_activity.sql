-- Conversations in the order in which they changed, as people look for the one that they used last.
CREATE INDEX conversations_by_activity ON conversations (tenant, updated_at DESC, id DESC);
