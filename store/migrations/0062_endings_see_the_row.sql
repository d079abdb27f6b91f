-- An ending names the version of the row from which it was computed.
ALTER TYPE session_ending ADD ATTRIBUTE seen bigint;
