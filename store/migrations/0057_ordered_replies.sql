-- Deliveries of one lane are sent one at a time, in the order in which they were written. The replies to an address have
-- a common lane; a notice for a subscription has its own, so that it waits for no other.

ALTER TABLE deliveries
    ADD COLUMN conversation_id text,  -- of a reply: one address has one conversation
    ADD COLUMN lane            text   NOT NULL GENERATED ALWAYS AS (coalesce(conversation_id, id)) STORED,
    ADD COLUMN number          bigint NOT NULL GENERATED ALWAYS AS IDENTITY;
CREATE INDEX deliveries_by_lane ON deliveries (tenant, lane, number) WHERE status = 'pending';
