-- A task is accepted with the definition that its request has read.
ALTER TYPE acceptance DROP ATTRIBUTE agent_digest;
-- The handle of a call belongs to a claim, which has its tool and effect.
ALTER TYPE tool_hold DROP ATTRIBUTE tool, DROP ATTRIBUTE effect;
