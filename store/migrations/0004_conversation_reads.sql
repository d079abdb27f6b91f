-- What a conversation used, by model, is summed up from these events alone.
CREATE INDEX events_usage ON events (tenant, conversation_id) WHERE type = 'usage_updated';
CREATE INDEX mailbox_by_recipient ON mailbox (tenant, delivered_to) WHERE delivered_to IS NOT NULL;
