-- The beginning of a step can be written beside the model request, or with the reply.
ALTER TYPE step_begin ADD ATTRIBUTE without_facts boolean;
ALTER TYPE step_commit ADD ATTRIBUTE begins integer;
ALTER TYPE step_commit ADD ATTRIBUTE beginning jsonb;
