-- A tool call that continues elsewhere, such as a task of an MCP server: what is needed to ask for its outcome.
ALTER TABLE tool_calls ADD COLUMN remote text;
CREATE TYPE tool_hold AS (
    tenant text, session_id text, run text, node text, call_index integer, tool text, effect text, holder text,
    attempt integer, remote text);
