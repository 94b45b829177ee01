INSERT INTO main._tombstones (table_name, row_id, version)
SELECT 'items', s.v0, s.v1
FROM (
  SELECT q.idx AS idx, q.op AS op, q.r AS r, q.r ->> '$."id"' AS v0, q.r ->> '$."updated_at"' AS v1
  FROM (
    SELECT key AS idx, value ->> '$.op' AS op, jsonb_extract(value, '$.row') AS r
    FROM jsonb_each(?, '$.changes')
    WHERE value ->> '$.table' = 'items'
      AND value ->> '$.op' = 'DELETE' LIMIT -1
  ) AS q LIMIT -1
) AS s
WHERE NOT EXISTS (SELECT 1 FROM main."items" AS t WHERE t."id" = s.v0 AND t."updated_at" > s.v1)
ON CONFLICT DO UPDATE SET version = excluded.version
WHERE excluded.version > version;

DELETE
FROM main."items"
WHERE "id" IN (
  SELECT t."id"
  FROM (
    SELECT q.idx AS idx, q.op AS op, q.r AS r, q.r ->> '$."id"' AS v0, q.r ->> '$."updated_at"' AS v1
    FROM (
      SELECT key AS idx, value ->> '$.op' AS op, jsonb_extract(value, '$.row') AS r
      FROM jsonb_each(?, '$.changes')
      WHERE value ->> '$.table' = 'items'
        AND value ->> '$.op' = 'DELETE' LIMIT -1
    ) AS q LIMIT -1
  ) AS s JOIN main."items" AS t
  ON t."id" = s.v0
  WHERE (t."updated_at" > s.v1) IS NOT 1
);

INSERT
  OR ABORT INTO main."items" AS _present ("id", "name", "value", "created_at", "updated_at")
SELECT s.v0, s.v1, s.v2, s.v3, s.v4
FROM (
  SELECT q.idx AS idx, q.op AS op, q.r AS r, q.r ->> '$."id"' AS v0, q.r ->> '$."name"' AS v1, q.r ->> '$."value"' AS v2, q.r ->> '$."created_at"' AS v3, q.r ->> '$."updated_at"' AS v4
  FROM (
    SELECT key AS idx, value ->> '$.op' AS op, jsonb_extract(value, '$.row') AS r
    FROM jsonb_each(?, '$.changes')
    WHERE value ->> '$.table' = 'items'
      AND value ->> '$.op' <> 'DELETE' LIMIT -1
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
      AND iif(
        excluded."created_at" IS NULL,
        '',
        CASE
          WHEN typeof(excluded."created_at") = 'real'
            AND excluded."created_at" BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308
            AND excluded."created_at" <> 0 THEN (
              WITH RECURSIVE f(m, e) AS (
                SELECT excluded."created_at", 0
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
              WHEN excluded."created_at" BETWEEN -9007199254740991 AND 9007199254740991
                AND typeof(excluded."created_at") = 'integer' THEN excluded."created_at"
              ELSE CASE
                typeof(excluded."created_at")
                WHEN 'integer' THEN CAST(excluded."created_at" AS TEXT)
                WHEN 'real' THEN CASE
                  WHEN excluded."created_at" > 1.7976931348623157e308 THEN '9e999'
                  WHEN excluded."created_at" < -1.7976931348623157e308 THEN '-9e999'
                  ELSE CASE
                    WHEN CAST(CAST(excluded."created_at" AS TEXT) AS REAL) = excluded."created_at" THEN excluded."created_at"
                    ELSE json(printf('%!.17g', excluded."created_at"))
                  END
                END
                WHEN 'blob' THEN '$blob:' || hex(excluded."created_at")
                WHEN 'text' THEN CASE
                  WHEN (
                    excluded."created_at" COLLATE BINARY >= '$' AND excluded."created_at" COLLATE BINARY < '%'
                  ) THEN CASE
                    WHEN excluded."created_at" GLOB '$blob:*'
                      OR excluded."created_at" GLOB '$text:*'
                      OR excluded."created_at" GLOB '$int:*'
                      OR excluded."created_at" GLOB '$real:*'
                      OR excluded."created_at" GLOB '$bytes:*' THEN '$text:' || excluded."created_at"
                    ELSE excluded."created_at" || ''
                  END
                  ELSE excluded."created_at" || ''
                END
              END
            END
          )
        END
      ) || char(10) || iif(
        excluded."id" IS NULL,
        '',
        json_quote(
          CASE
            WHEN excluded."id" COLLATE BINARY >= '%'
              AND excluded."id" < x'' THEN excluded."id" || ''
            WHEN excluded."id" >= x'' THEN '$blob:' || hex(excluded."id")
            WHEN (excluded."id" COLLATE BINARY >= '$' AND excluded."id" COLLATE BINARY < '%') THEN CASE
              WHEN excluded."id" GLOB '$blob:*'
                OR excluded."id" GLOB '$text:*'
                OR excluded."id" GLOB '$int:*'
                OR excluded."id" GLOB '$real:*'
                OR excluded."id" GLOB '$bytes:*' THEN '$text:' || excluded."id"
              ELSE excluded."id" || ''
            END
            ELSE excluded."id" || ''
          END
        )
      ) || char(10) || iif(
        excluded."name" IS NULL,
        '',
        json_quote(
          CASE
            WHEN excluded."name" COLLATE BINARY >= '%'
              AND excluded."name" < x'' THEN excluded."name" || ''
            WHEN excluded."name" >= x'' THEN '$blob:' || hex(excluded."name")
            WHEN (excluded."name" COLLATE BINARY >= '$' AND excluded."name" COLLATE BINARY < '%') THEN CASE
              WHEN excluded."name" GLOB '$blob:*'
                OR excluded."name" GLOB '$text:*'
                OR excluded."name" GLOB '$int:*'
                OR excluded."name" GLOB '$real:*'
                OR excluded."name" GLOB '$bytes:*' THEN '$text:' || excluded."name"
              ELSE excluded."name" || ''
            END
            ELSE excluded."name" || ''
          END
        )
      ) || char(10) || iif(
        excluded."updated_at" IS NULL,
        '',
        CASE
          WHEN typeof(excluded."updated_at") = 'real'
            AND excluded."updated_at" BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308
            AND excluded."updated_at" <> 0 THEN (
              WITH RECURSIVE f(m, e) AS (
                SELECT excluded."updated_at", 0
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
              WHEN excluded."updated_at" BETWEEN -9007199254740991 AND 9007199254740991
                AND typeof(excluded."updated_at") = 'integer' THEN excluded."updated_at"
              ELSE CASE
                typeof(excluded."updated_at")
                WHEN 'integer' THEN CAST(excluded."updated_at" AS TEXT)
                WHEN 'real' THEN CASE
                  WHEN excluded."updated_at" > 1.7976931348623157e308 THEN '9e999'
                  WHEN excluded."updated_at" < -1.7976931348623157e308 THEN '-9e999'
                  ELSE CASE
                    WHEN CAST(CAST(excluded."updated_at" AS TEXT) AS REAL) = excluded."updated_at" THEN excluded."updated_at"
                    ELSE json(printf('%!.17g', excluded."updated_at"))
                  END
                END
                WHEN 'blob' THEN '$blob:' || hex(excluded."updated_at")
                WHEN 'text' THEN CASE
                  WHEN (
                    excluded."updated_at" COLLATE BINARY >= '$' AND excluded."updated_at" COLLATE BINARY < '%'
                  ) THEN CASE
                    WHEN excluded."updated_at" GLOB '$blob:*'
                      OR excluded."updated_at" GLOB '$text:*'
                      OR excluded."updated_at" GLOB '$int:*'
                      OR excluded."updated_at" GLOB '$real:*'
                      OR excluded."updated_at" GLOB '$bytes:*' THEN '$text:' || excluded."updated_at"
                    ELSE excluded."updated_at" || ''
                  END
                  ELSE excluded."updated_at" || ''
                END
              END
            END
          )
        END
      ) || char(10) || iif(
        excluded."value" IS NULL,
        '',
        CASE
          WHEN typeof(excluded."value") = 'real'
            AND excluded."value" BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308
            AND excluded."value" <> 0 THEN (
              WITH RECURSIVE f(m, e) AS (
                SELECT excluded."value", 0
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
              WHEN excluded."value" BETWEEN -9007199254740991 AND 9007199254740991
                AND typeof(excluded."value") = 'integer' THEN excluded."value"
              ELSE CASE
                typeof(excluded."value")
                WHEN 'integer' THEN CAST(excluded."value" AS TEXT)
                WHEN 'real' THEN CASE
                  WHEN excluded."value" > 1.7976931348623157e308 THEN '9e999'
                  WHEN excluded."value" < -1.7976931348623157e308 THEN '-9e999'
                  ELSE CASE
                    WHEN CAST(CAST(excluded."value" AS TEXT) AS REAL) = excluded."value" THEN excluded."value"
                    ELSE json(printf('%!.17g', excluded."value"))
                  END
                END
                WHEN 'blob' THEN '$blob:' || hex(excluded."value")
                WHEN 'text' THEN CASE
                  WHEN (excluded."value" COLLATE BINARY >= '$' AND excluded."value" COLLATE BINARY < '%') THEN CASE
                    WHEN excluded."value" GLOB '$blob:*'
                      OR excluded."value" GLOB '$text:*'
                      OR excluded."value" GLOB '$int:*'
                      OR excluded."value" GLOB '$real:*'
                      OR excluded."value" GLOB '$bytes:*' THEN '$text:' || excluded."value"
                    ELSE excluded."value" || ''
                  END
                  ELSE excluded."value" || ''
                END
              END
            END
          )
        END
      ) || char(10) > iif(
        _present."created_at" IS NULL,
        '',
        CASE
          WHEN typeof(_present."created_at") = 'real'
            AND _present."created_at" BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308
            AND _present."created_at" <> 0 THEN (
              WITH RECURSIVE f(m, e) AS (
                SELECT _present."created_at", 0
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
              WHEN _present."created_at" BETWEEN -9007199254740991 AND 9007199254740991
                AND typeof(_present."created_at") = 'integer' THEN _present."created_at"
              ELSE CASE
                typeof(_present."created_at")
                WHEN 'integer' THEN CAST(_present."created_at" AS TEXT)
                WHEN 'real' THEN CASE
                  WHEN _present."created_at" > 1.7976931348623157e308 THEN '9e999'
                  WHEN _present."created_at" < -1.7976931348623157e308 THEN '-9e999'
                  ELSE CASE
                    WHEN CAST(CAST(_present."created_at" AS TEXT) AS REAL) = _present."created_at" THEN _present."created_at"
                    ELSE json(printf('%!.17g', _present."created_at"))
                  END
                END
                WHEN 'blob' THEN '$blob:' || hex(_present."created_at")
                WHEN 'text' THEN CASE
                  WHEN (
                    _present."created_at" COLLATE BINARY >= '$' AND _present."created_at" COLLATE BINARY < '%'
                  ) THEN CASE
                    WHEN _present."created_at" GLOB '$blob:*'
                      OR _present."created_at" GLOB '$text:*'
                      OR _present."created_at" GLOB '$int:*'
                      OR _present."created_at" GLOB '$real:*'
                      OR _present."created_at" GLOB '$bytes:*' THEN '$text:' || _present."created_at"
                    ELSE _present."created_at" || ''
                  END
                  ELSE _present."created_at" || ''
                END
              END
            END
          )
        END
      ) || char(10) || iif(
        _present."id" IS NULL,
        '',
        json_quote(
          CASE
            WHEN _present."id" COLLATE BINARY >= '%'
              AND _present."id" < x'' THEN _present."id" || ''
            WHEN _present."id" >= x'' THEN '$blob:' || hex(_present."id")
            WHEN (_present."id" COLLATE BINARY >= '$' AND _present."id" COLLATE BINARY < '%') THEN CASE
              WHEN _present."id" GLOB '$blob:*'
                OR _present."id" GLOB '$text:*'
                OR _present."id" GLOB '$int:*'
                OR _present."id" GLOB '$real:*'
                OR _present."id" GLOB '$bytes:*' THEN '$text:' || _present."id"
              ELSE _present."id" || ''
            END
            ELSE _present."id" || ''
          END
        )
      ) || char(10) || iif(
        _present."name" IS NULL,
        '',
        json_quote(
          CASE
            WHEN _present."name" COLLATE BINARY >= '%'
              AND _present."name" < x'' THEN _present."name" || ''
            WHEN _present."name" >= x'' THEN '$blob:' || hex(_present."name")
            WHEN (_present."name" COLLATE BINARY >= '$' AND _present."name" COLLATE BINARY < '%') THEN CASE
              WHEN _present."name" GLOB '$blob:*'
                OR _present."name" GLOB '$text:*'
                OR _present."name" GLOB '$int:*'
                OR _present."name" GLOB '$real:*'
                OR _present."name" GLOB '$bytes:*' THEN '$text:' || _present."name"
              ELSE _present."name" || ''
            END
            ELSE _present."name" || ''
          END
        )
      ) || char(10) || iif(
        _present."updated_at" IS NULL,
        '',
        CASE
          WHEN typeof(_present."updated_at") = 'real'
            AND _present."updated_at" BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308
            AND _present."updated_at" <> 0 THEN (
              WITH RECURSIVE f(m, e) AS (
                SELECT _present."updated_at", 0
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
              WHEN _present."updated_at" BETWEEN -9007199254740991 AND 9007199254740991
                AND typeof(_present."updated_at") = 'integer' THEN _present."updated_at"
              ELSE CASE
                typeof(_present."updated_at")
                WHEN 'integer' THEN CAST(_present."updated_at" AS TEXT)
                WHEN 'real' THEN CASE
                  WHEN _present."updated_at" > 1.7976931348623157e308 THEN '9e999'
                  WHEN _present."updated_at" < -1.7976931348623157e308 THEN '-9e999'
                  ELSE CASE
                    WHEN CAST(CAST(_present."updated_at" AS TEXT) AS REAL) = _present."updated_at" THEN _present."updated_at"
                    ELSE json(printf('%!.17g', _present."updated_at"))
                  END
                END
                WHEN 'blob' THEN '$blob:' || hex(_present."updated_at")
                WHEN 'text' THEN CASE
                  WHEN (
                    _present."updated_at" COLLATE BINARY >= '$' AND _present."updated_at" COLLATE BINARY < '%'
                  ) THEN CASE
                    WHEN _present."updated_at" GLOB '$blob:*'
                      OR _present."updated_at" GLOB '$text:*'
                      OR _present."updated_at" GLOB '$int:*'
                      OR _present."updated_at" GLOB '$real:*'
                      OR _present."updated_at" GLOB '$bytes:*' THEN '$text:' || _present."updated_at"
                    ELSE _present."updated_at" || ''
                  END
                  ELSE _present."updated_at" || ''
                END
              END
            END
          )
        END
      ) || char(10) || iif(
        _present."value" IS NULL,
        '',
        CASE
          WHEN typeof(_present."value") = 'real'
            AND _present."value" BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308
            AND _present."value" <> 0 THEN (
              WITH RECURSIVE f(m, e) AS (
                SELECT _present."value", 0
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
              WHEN _present."value" BETWEEN -9007199254740991 AND 9007199254740991
                AND typeof(_present."value") = 'integer' THEN _present."value"
              ELSE CASE
                typeof(_present."value")
                WHEN 'integer' THEN CAST(_present."value" AS TEXT)
                WHEN 'real' THEN CASE
                  WHEN _present."value" > 1.7976931348623157e308 THEN '9e999'
                  WHEN _present."value" < -1.7976931348623157e308 THEN '-9e999'
                  ELSE CASE
                    WHEN CAST(CAST(_present."value" AS TEXT) AS REAL) = _present."value" THEN _present."value"
                    ELSE json(printf('%!.17g', _present."value"))
                  END
                END
                WHEN 'blob' THEN '$blob:' || hex(_present."value")
                WHEN 'text' THEN CASE
                  WHEN (_present."value" COLLATE BINARY >= '$' AND _present."value" COLLATE BINARY < '%') THEN CASE
                    WHEN _present."value" GLOB '$blob:*'
                      OR _present."value" GLOB '$text:*'
                      OR _present."value" GLOB '$int:*'
                      OR _present."value" GLOB '$real:*'
                      OR _present."value" GLOB '$bytes:*' THEN '$text:' || _present."value"
                    ELSE _present."value" || ''
                  END
                  ELSE _present."value" || ''
                END
              END
            END
          )
        END
      ) || char(10)
  );
