"""PostgreSQL: the only SQL of the project. Every function takes the tenant first, or a reference that carries it."""
