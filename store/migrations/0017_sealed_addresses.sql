-- Addresses and secrets of subscriptions are encrypted; this is what people see of an address. Subscriptions from before keep
-- theirs in plain text until they are made anew.
ALTER TABLE subscriptions ADD COLUMN target_shown text NOT NULL DEFAULT '';
UPDATE subscriptions SET target_shown = CASE channel
    WHEN 'email' THEN regexp_replace(target, '^(.).*@', '\1…@')
    ELSE regexp_replace(target, '^([a-z]+://)(?:[^/@]*@)?([^/?#]*).*$', '\1\2/…') END;
