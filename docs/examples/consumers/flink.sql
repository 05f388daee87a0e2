-- Flink SQL: each change of a topic once. Not run by a test. The first query drops repeats by mr-pos, which no two changes share; the state
-- of a position is kept for the time that a repeat may take (a crash and the next start).
SET 'table.exec.state.ttl' = '24 h';

CREATE TABLE orders_events (
  `partition` INT METADATA VIRTUAL,
  `headers`   MAP<STRING, BYTES> METADATA VIRTUAL,
  `arrived`   AS PROCTIME(),
  `op`        STRING,
  `before`    ROW<id BIGINT, v STRING>,
  `after`     ROW<id BIGINT, v STRING>
) WITH (
  'connector' = 'kafka',
  'topic' = 'shop.public.orders',
  'properties.bootstrap.servers' = 'localhost:9092',
  'properties.isolation.level' = 'read_committed',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
);

CREATE VIEW orders_once AS
SELECT `op`, `before`, `after`, `position` FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY `partition`, `position` ORDER BY arrived) AS nth
  FROM (SELECT *, DECODE(`headers`['mr-pos'], 'US-ASCII') AS `position` FROM orders_events)
) WHERE nth = 1;
