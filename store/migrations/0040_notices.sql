-- NewNotice of domain/notices.py, as give_notice takes it.
CREATE TYPE new_notice AS (
    tenant text, conversation_id text, type text, at timestamptz, data text, session_id text, seq bigint);
