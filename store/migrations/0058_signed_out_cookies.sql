-- Cookies of the console that were signed out before they expired; every process looks here.
CREATE TABLE signed_out_cookies (
    id         text PRIMARY KEY,
    expires_at timestamptz NOT NULL
);
