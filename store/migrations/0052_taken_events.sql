-- The events that a transaction takes from the event writer have a name, by which the writer sees whether they were written.
ALTER TYPE step_commit ADD ATTRIBUTE batch text;
ALTER TYPE tool_commit ADD ATTRIBUTE batch text;
ALTER TYPE retry_note ADD ATTRIBUTE batch text;
