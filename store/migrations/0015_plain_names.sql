-- Columns get the names of what they hold.

ALTER TABLE sessions RENAME COLUMN told TO emitted_once;            -- names of events of which a session has one
ALTER TABLE budgets RENAME COLUMN told TO low_reported;             -- which limits watchers know to be low
ALTER TABLE input_requests RENAME COLUMN heard TO settled;          -- its session has continued from it
ALTER TABLE inbox RENAME COLUMN untold TO unsignalled;              -- no workflow was signalled yet; the sweeper does it
ALTER INDEX inbox_untold RENAME TO inbox_unsignalled;

DROP FUNCTION IF EXISTS tell(text, text, jsonb);                    -- emit_events now
