-- What waits for a worker is counted for a tenant, too.
DROP FUNCTION IF EXISTS count_waiting(integer);
