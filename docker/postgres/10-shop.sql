-- The table, the roles with no more rights than they need, and the publications. Run once, when
-- the volume is empty, by the image's entry point with psql.
\getenv millrace_password MILLRACE_PASSWORD
\getenv exporter_password EXPORTER_PASSWORD

CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id bigint NOT NULL,
    amount numeric(12, 2) NOT NULL,
    note text,
    updated_at timestamptz NOT NULL DEFAULT now());

CREATE ROLE millrace LOGIN REPLICATION PASSWORD :'millrace_password';
GRANT SELECT ON orders TO millrace;
CREATE PUBLICATION millrace FOR TABLE orders;

-- Debezium comes with the same role, a slot of its own and this publication.
CREATE PUBLICATION debezium FOR TABLE orders;

CREATE ROLE exporter LOGIN PASSWORD :'exporter_password';
GRANT pg_monitor TO exporter;
