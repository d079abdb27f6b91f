"""HTTP mechanics: middleware, bodies, problems, idempotency, paging."""
