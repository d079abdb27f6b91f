-- A subscription may ask to be notified when subagents end too; by default their end is reported to their parent alone.

ALTER TABLE subscriptions ADD COLUMN subagents boolean NOT NULL DEFAULT false;
