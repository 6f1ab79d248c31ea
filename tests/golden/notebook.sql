-- A notebook's worth of Spark SQL: tests/engine/spark/catalog/test_notebook.py runs it on Fluvial, tests/peers/delta.py has Delta's results.
CREATE TABLE orders (id BIGINT NOT NULL, customer STRING, amount DECIMAL(10, 2), day DATE, state STRING)
  TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '2');
INSERT INTO orders VALUES
  (1, 'ada', 10.50, DATE '2026-11-01', 'new'), (2, 'bob', 20.00, DATE '2026-11-01', 'new'),
  (3, 'ada', 5.25, DATE '2026-11-02', 'new'), (4, NULL, NULL, NULL, 'new');
INSERT INTO orders (id, state) VALUES (5, 'draft');
SELECT * FROM orders ORDER BY id;
SELECT customer, sum(amount) AS total, count(*) AS n FROM orders GROUP BY customer ORDER BY customer NULLS LAST;
UPDATE orders SET state = 'paid', amount = amount * 2 WHERE customer = 'ada' AND day < DATE '2026-11-02';
DELETE FROM orders WHERE customer IS NULL AND state = 'draft';
SELECT id, amount, state FROM orders ORDER BY id;
CREATE OR REPLACE TEMPORARY VIEW news AS
  SELECT * FROM VALUES (2L, 'bob', 21.00, DATE '2026-11-03', 'paid'), (6L, 'eve', 7.00, DATE '2026-11-03', 'new'),
    (3L, 'ada', 5.25, DATE '2026-11-02', 'gone') AS n(id, customer, amount, day, state);
MERGE INTO orders USING news ON orders.id = news.id
  WHEN MATCHED AND news.state = 'gone' THEN DELETE
  WHEN MATCHED THEN UPDATE SET amount = news.amount, state = news.state
  WHEN NOT MATCHED THEN INSERT *
  WHEN NOT MATCHED BY SOURCE AND orders.customer IS NULL THEN UPDATE SET customer = 'nobody';
SELECT * FROM orders ORDER BY id;
DELETE FROM orders WHERE customer = 'eve' OR amount > (10 * 1000);
SELECT count(*) AS n, sum(amount) AS total, min(day) AS first, max(day) AS last FROM orders;
SELECT count(*) AS n FROM orders VERSION AS OF 1;
SELECT id, customer, amount, state, _change_type, _commit_version FROM orders CHANGES FROM VERSION 0
  ORDER BY _commit_version, id, _change_type;
SELECT id, customer, amount, state, _change_type, _commit_version
  FROM orders CHANGES FROM VERSION 1 EXCLUSIVE TO VERSION 6 EXCLUSIVE WITH (computeUpdates = 'true')
  ORDER BY _commit_version, id, _change_type;
SELECT id, customer, amount, state, _change_type
  FROM orders CHANGES FROM VERSION 3 TO VERSION 5 WITH (deduplicationMode = 'netChanges') ORDER BY id, _change_type;
SELECT id, state, _change_type FROM orders CHANGES FROM VERSION 3
  WITH (deduplicationMode = 'netChanges', computeUpdates = 'true') ORDER BY id, _change_type;
ALTER TABLE orders ADD COLUMNS (note STRING, tags ARRAY<STRING>, place STRUCT<city: STRING, zip: INT>);
INSERT INTO orders VALUES
  (7, 'zoe', 1.00, DATE '2026-11-04', 'new', 'hand over', array('a', 'b'), named_struct('city', 'Ulm', 'zip', 89073));
SELECT id, note, tags[0] AS tag, place.city AS city FROM orders ORDER BY id;
CREATE TABLE days TBLPROPERTIES ('bucket' = '-1') AS
  SELECT day, sum(amount) AS total, collect_list(id) AS ids FROM orders WHERE day IS NOT NULL GROUP BY day;
SELECT day, total, size(ids) AS n FROM days ORDER BY day;
SELECT o.id, o.day, d.total, row_number() OVER (PARTITION BY o.customer ORDER BY o.id) AS nth
  FROM orders AS o LEFT JOIN days AS d ON o.day = d.day ORDER BY o.id;
WITH best AS (SELECT customer, max(amount) AS most FROM orders GROUP BY customer)
  SELECT * FROM best WHERE most IS NOT NULL ORDER BY most DESC, customer;
SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM days WHERE days.day = orders.day AND days.total > 10) ORDER BY id;
CREATE TABLE events (day DATE, kind STRING, n INT) PARTITIONED BY (day);
INSERT INTO events VALUES (DATE '2026-11-01', 'a', 1), (DATE '2026-11-02', 'b', 2), (DATE '2026-11-02', 'b', 2);
SELECT day, kind, sum(n) AS n FROM events WHERE day >= DATE '2026-11-02' GROUP BY ALL ORDER BY day;
INSERT INTO events SELECT date_add(day, 1), upper(kind), n FROM events;
SELECT * FROM events ORDER BY day, kind, n;
SELECT * FROM (SELECT kind, n FROM events) PIVOT (sum(n) FOR kind IN ('a' AS a, 'b' AS b, 'A' AS big_a, 'B' AS big_b));
TRUNCATE TABLE events;
SELECT count(*) AS n FROM events;
DROP TABLE events;
