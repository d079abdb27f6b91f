-- A step is begun and committed, a tool call claimed and committed; nothing is written later or with something else.
DROP FUNCTION IF EXISTS record_tool(tool_commit);
DROP FUNCTION IF EXISTS current_events(event_row[], boolean);
DROP FUNCTION IF EXISTS step_facts(text, text, text);
DROP FUNCTION IF EXISTS has_budget(text, text);
ALTER TYPE step_begin DROP ATTRIBUTE result, DROP ATTRIBUTE without_facts;
ALTER TYPE step_commit DROP ATTRIBUTE result, DROP ATTRIBUTE begins, DROP ATTRIBUTE beginning, DROP ATTRIBUTE batch;
ALTER TYPE tool_commit DROP ATTRIBUTE started_at, DROP ATTRIBUTE batch, DROP ATTRIBUTE tool, DROP ATTRIBUTE effect;
ALTER TYPE retry_note DROP ATTRIBUTE batch;
