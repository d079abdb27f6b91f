-- Whether an event is a piece of a streamed text: the types that are a TextDelta in domain/events.py.
CREATE OR REPLACE FUNCTION is_delta(p_type text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_type IN ('message_delta', 'thinking_delta')
$$;
