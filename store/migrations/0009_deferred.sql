-- What a session is answered from outside: calls of its caller's own tools, and the values it cannot begin without.

ALTER TABLE sessions
    ADD COLUMN external_tools text NOT NULL DEFAULT '[]',   -- JSON: tools whose calls the caller answers
    ADD COLUMN variables      text NOT NULL DEFAULT '{}',   -- JSON: name -> value
    ADD COLUMN missing        text NOT NULL DEFAULT '{}';   -- JSON: name -> description, asked for before the first step

-- Words that were accepted while nobody could tell their conversation of them; the sweeper does.
ALTER TABLE inbox ADD COLUMN untold boolean NOT NULL DEFAULT false;
CREATE INDEX inbox_untold ON inbox (number) WHERE untold;
