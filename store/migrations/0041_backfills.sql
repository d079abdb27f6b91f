-- Times for which runs were asked for after the fact: they are never treated as missed.
ALTER TABLE schedules ADD COLUMN backfilled tstzmultirange NOT NULL DEFAULT '{}';
