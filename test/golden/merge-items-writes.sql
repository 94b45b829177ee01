INSERT
  OR ABORT INTO main."items" AS _present ("id", "name", "value", "created_at", "updated_at")
SELECT s.v0, s.v1, s.v2, s.v3, s.v4
FROM (
  SELECT q.idx AS idx, q.op AS op, q.r AS r, q.r ->> '$."id"' AS v0, q.r ->> '$."name"' AS v1, q.r ->> '$."value"' AS v2, q.r ->> '$."created_at"' AS v3, q.r ->> '$."updated_at"' AS v4
  FROM (
    SELECT key AS idx, 'INSERT' AS op, jsonb_extract(value, '$.row') AS r
    FROM jsonb_each(?, '$.changes') LIMIT -1
  ) AS q LIMIT -1
) AS s
WHERE NOT (
  (SELECT EXISTS (SELECT 1 FROM main._tombstones WHERE table_name = 'items'))
    AND EXISTS (
      SELECT 1
      FROM main._tombstones AS g
      WHERE g.table_name = 'items'
        AND g.row_id = s.v0
        AND g.version >= s.v4
    )
)
ON CONFLICT ("id") DO UPDATE SET "name" = excluded."name",
"value" = excluded."value",
"created_at" = excluded."created_at",
"updated_at" = excluded."updated_at"
WHERE (_present."updated_at" >= excluded."updated_at") IS NOT 1
  OR (
    excluded."updated_at" = _present."updated_at"
      AND NOT (
        (
          excluded."name" COLLATE BINARY IS _present."name"
            AND excluded."value" COLLATE BINARY IS _present."value"
            AND excluded."created_at" COLLATE BINARY IS _present."created_at"
        )
      )
      AND (
        SELECT group_concat(line, '')
        FROM (
          SELECT iif(
            v IS NULL,
            '',
            CASE
              WHEN typeof(v) = 'real'
                AND v BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308
                AND v <> 0 THEN (
                  WITH RECURSIVE f(m, e) AS (
                    SELECT v, 0
                    UNION ALL
                    SELECT iif(abs(m) < 4503599627370496, m * 1024.0, m / 1024.0), iif(
                      abs(m) < 4503599627370496, e - 1, e + 1
                    )
                    FROM f
                    WHERE abs(m) < 4503599627370496
                      OR abs(m) >= 4611686018427387904
                  )
                  SELECT CAST(m AS INTEGER) || 'p' || e
                  FROM f
                  WHERE abs(m) >= 4503599627370496
                    AND abs(m) < 4611686018427387904
                )
              ELSE json_quote(
                CASE
                  WHEN v BETWEEN -9007199254740991 AND 9007199254740991
                    AND typeof(v) = 'integer' THEN v
                  ELSE CASE
                    typeof(v)
                    WHEN 'integer' THEN CAST(v AS TEXT)
                    WHEN 'real' THEN CASE
                      WHEN v > 1.7976931348623157e308 THEN '9e999'
                      WHEN v < -1.7976931348623157e308 THEN '-9e999'
                      ELSE CASE
                        WHEN CAST(CAST(v AS TEXT) AS REAL) = v THEN v ELSE json(printf('%!.17g', v))
                      END
                    END
                    WHEN 'blob' THEN '$blob:' || hex(v)
                    WHEN 'text' THEN CASE
                      WHEN (v COLLATE BINARY >= '$' AND v COLLATE BINARY < '%') THEN CASE
                        WHEN v GLOB '$blob:*'
                          OR v GLOB '$text:*'
                          OR v GLOB '$int:*'
                          OR v GLOB '$real:*'
                          OR v GLOB '$bytes:*' THEN '$text:' || v
                        ELSE v || ''
                      END
                      ELSE v || ''
                    END
                  END
                END
              )
            END
          ) || char(10) AS line
          FROM (
            SELECT 'created_at' AS k, +excluded."created_at" AS v
            UNION ALL
            SELECT 'id' AS k, +excluded."id" AS v
            UNION ALL
            SELECT 'name' AS k, +excluded."name" AS v
            UNION ALL
            SELECT 'updated_at' AS k, +excluded."updated_at" AS v
            UNION ALL
            SELECT 'value' AS k, +excluded."value" AS v
          )
        )
      ) > (
        SELECT group_concat(line, '')
        FROM (
          SELECT iif(
            v IS NULL,
            '',
            CASE
              WHEN typeof(v) = 'real'
                AND v BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308
                AND v <> 0 THEN (
                  WITH RECURSIVE f(m, e) AS (
                    SELECT v, 0
                    UNION ALL
                    SELECT iif(abs(m) < 4503599627370496, m * 1024.0, m / 1024.0), iif(
                      abs(m) < 4503599627370496, e - 1, e + 1
                    )
                    FROM f
                    WHERE abs(m) < 4503599627370496
                      OR abs(m) >= 4611686018427387904
                  )
                  SELECT CAST(m AS INTEGER) || 'p' || e
                  FROM f
                  WHERE abs(m) >= 4503599627370496
                    AND abs(m) < 4611686018427387904
                )
              ELSE json_quote(
                CASE
                  WHEN v BETWEEN -9007199254740991 AND 9007199254740991
                    AND typeof(v) = 'integer' THEN v
                  ELSE CASE
                    typeof(v)
                    WHEN 'integer' THEN CAST(v AS TEXT)
                    WHEN 'real' THEN CASE
                      WHEN v > 1.7976931348623157e308 THEN '9e999'
                      WHEN v < -1.7976931348623157e308 THEN '-9e999'
                      ELSE CASE
                        WHEN CAST(CAST(v AS TEXT) AS REAL) = v THEN v ELSE json(printf('%!.17g', v))
                      END
                    END
                    WHEN 'blob' THEN '$blob:' || hex(v)
                    WHEN 'text' THEN CASE
                      WHEN (v COLLATE BINARY >= '$' AND v COLLATE BINARY < '%') THEN CASE
                        WHEN v GLOB '$blob:*'
                          OR v GLOB '$text:*'
                          OR v GLOB '$int:*'
                          OR v GLOB '$real:*'
                          OR v GLOB '$bytes:*' THEN '$text:' || v
                        ELSE v || ''
                      END
                      ELSE v || ''
                    END
                  END
                END
              )
            END
          ) || char(10) AS line
          FROM (
            SELECT 'created_at' AS k, +_present."created_at" AS v
            UNION ALL
            SELECT 'id' AS k, +_present."id" AS v
            UNION ALL
            SELECT 'name' AS k, +_present."name" AS v
            UNION ALL
            SELECT 'updated_at' AS k, +_present."updated_at" AS v
            UNION ALL
            SELECT 'value' AS k, +_present."value" AS v
          )
        )
      )
  );
