-- Which hooks each worker has, so that an agent that names another one is refused when it is defined.
ALTER TABLE workers ADD COLUMN hooks text[] NOT NULL DEFAULT '{}';
