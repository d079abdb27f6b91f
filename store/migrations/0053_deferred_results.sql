-- The result of a read can be written with the beginning or the reply of the next step.
ALTER TYPE step_begin ADD ATTRIBUTE result jsonb;
ALTER TYPE step_commit ADD ATTRIBUTE result jsonb;
