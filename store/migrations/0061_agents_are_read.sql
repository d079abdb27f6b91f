-- A task is accepted with the definition that its request has read.
ALTER TYPE acceptance DROP ATTRIBUTE agent_digest;
