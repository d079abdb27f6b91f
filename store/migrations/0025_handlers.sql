-- Which handlers each worker has, so that an agent that names another one is refused when it is defined.
ALTER TABLE workers ADD COLUMN handlers text[] NOT NULL DEFAULT '{}';
