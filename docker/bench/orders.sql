-- One transaction of pgbench: three inserts, an update, sometimes a delete.
\set customer random_zipfian(1, 100000, 1.1)
\set amount random(1, 100000)
\set old random(1, 10000)
BEGIN;
INSERT INTO orders (customer_id, amount, note)
SELECT :customer + n, :amount / 100.0, repeat(md5(random()::text), 4) FROM generate_series(1, 3) n;
UPDATE orders SET amount = amount + 1, updated_at = now() WHERE id = :old;
DELETE FROM orders WHERE id = :old AND :old % 10 = 0;
COMMIT;
