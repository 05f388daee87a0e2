-- The role that millrace runs as, with only the rights that it needs, and its publication.
--
--   psql -d shop -v role=millrace -v password="$PASSWORD" -v publication=millrace \
--        -v tables='public.orders, public.items' -f scripts/role.sql
--
-- Run it as a superuser, or from PostgreSQL 16 on as the owner of database, schemas and tables with CREATEROLE and
-- REPLICATION. Where a role gives the right to replicate, as Amazon's rds_replication: -v replication_role=rds_replication.
-- In another database of the server the role that exists gets its rights there. The limit of connections is that of docs/sizing.md.
-- A role with REPLICATION can read the changes of every database of the server through a slot: guard its password,
-- and let it in from millrace's machine only (pg_hba.conf, hostssl, the line of the database).
\set ON_ERROR_STOP on
BEGIN;
SELECT NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'role') AS is_new, :{?replication_role} AS is_member \gset
\if :is_new
\if :is_member
CREATE ROLE :"role" LOGIN CONNECTION LIMIT 16 PASSWORD :'password';
GRANT :"replication_role" TO :"role";
\else
CREATE ROLE :"role" LOGIN REPLICATION NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS NOINHERIT CONNECTION LIMIT 16
    PASSWORD :'password';
\endif
\else
\echo the role exists and keeps its password
\endif
SELECT format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), :'role') \gexec
SELECT DISTINCT format('GRANT USAGE ON SCHEMA %I TO %I', nspname, :'role')
    FROM unnest(string_to_array(:'tables', ',')) named
    JOIN pg_class ON pg_class.oid = trim(named)::regclass JOIN pg_namespace n ON n.oid = relnamespace \gexec
-- Only copies of existing rows read tables; the stream does not. With a role of their own (snapshot.connection,
-- docs/security.md, "Owners of copied tables") this one needs no right on any table.
GRANT SELECT ON :tables TO :"role";
-- One that is there, as of a millrace that ran before, gets what it lacks.
SELECT NOT EXISTS (SELECT FROM pg_publication WHERE pubname = :'publication') AS is_new \gset
\if :is_new
CREATE PUBLICATION :"publication" FOR TABLE :tables;
\else
\echo the publication exists and gets the tables that it lacks
SELECT format('ALTER PUBLICATION %I ADD TABLE %s', pubname, trim(named)::regclass)
    FROM pg_publication p, unnest(string_to_array(:'tables', ',')) named
    WHERE pubname = :'publication' AND NOT puballtables AND NOT EXISTS
        (SELECT FROM pg_publication_rel WHERE prpubid = p.oid AND prrelid = trim(named)::regclass) \gexec
\endif
COMMIT;
