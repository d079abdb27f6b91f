-- EventRow of domain/events/base.py, as the functions that append events take it.
CREATE TYPE event_row AS (
    tenant text, session_id text, conversation_id text, type text, terminal boolean, at timestamptz, data text);
