-- Values of variables that a tenant has for all its threads; those that are secret are encrypted.
CREATE TABLE tenant_variables (
    tenant      text        NOT NULL,
    name        text        NOT NULL,
    value       text        NOT NULL,
    updated_by  text        NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, name)
);
