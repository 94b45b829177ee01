CREATE TRIGGER "_rowcast_items_insert_floor" BEFORE INSERT
ON "items"
FOR EACH ROW
WHEN (changes() <> 7 OR (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1)
  AND EXISTS (SELECT 1 FROM "items" WHERE "id" = NEW."id")
  AND EXISTS (
    SELECT 1
    FROM "items"
    WHERE "id" = NEW."id"
      AND NOT (
        (
          (
            NEW."updated_at" BETWEEN -8640000000000000 AND 7258118400000
              AND NEW."updated_at" = CAST(NEW."updated_at" AS INTEGER)
          ) IS TRUE
        )
          AND "updated_at" < NEW."updated_at"
      )
  )
  AND (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1 BEGIN
    INSERT INTO _stamps (table_name, row_id, version)
    SELECT 'items', "id", "updated_at"
    FROM "items"
    WHERE "id" = NEW."id"
      AND (
        (
          "updated_at" BETWEEN -8640000000000000 AND 7258118400000
            AND "updated_at" = CAST("updated_at" AS INTEGER)
        ) IS TRUE
      )
    ON CONFLICT DO UPDATE SET version = max(version, excluded.version),
    refused = NULL;
  END;

CREATE TRIGGER "_rowcast_items_rename_floor" BEFORE UPDATE OF "id"
ON "items"
FOR EACH ROW
WHEN OLD."id" IS NOT NEW."id"
  AND (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1 BEGIN
    INSERT INTO _stamps (table_name, row_id, version)
    SELECT 'items', "id", "updated_at"
    FROM "items"
    WHERE "id" = NEW."id"
      AND (
        (
          "updated_at" BETWEEN -8640000000000000 AND 7258118400000
            AND "updated_at" = CAST("updated_at" AS INTEGER)
        ) IS TRUE
      )
    ON CONFLICT DO UPDATE SET version = max(version, excluded.version),
    refused = NULL;
    INSERT INTO _stamps (table_name, row_id, version)
    SELECT 'items', row_id, version
    FROM _tombstones
    WHERE table_name = 'items'
      AND row_id = NEW."id"
    ON CONFLICT DO UPDATE SET version = max(version, excluded.version),
    refused = NULL;
    INSERT INTO _stamps (table_name, row_id, version)
    SELECT 'items', row_id, version
    FROM _hidden
    WHERE table_name = 'items'
      AND row_id = NEW."id"
    ON CONFLICT DO UPDATE SET version = max(version, excluded.version),
    refused = NULL;
  END;

CREATE TRIGGER "_rowcast_items_insert_clash" BEFORE INSERT
ON "items"
FOR EACH ROW
WHEN (changes() <> 7 OR (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1)
  AND EXISTS (
    SELECT 1
    FROM "items" AS t
    WHERE t."id" IN (
      SELECT t."id"
      FROM "items" AS t
      WHERE t."email" = NEW."email" COLLATE "NOCASE"
      UNION ALL
      SELECT t."id"
      FROM "items" AS t
      WHERE t.rowid = NEW.rowid
    )
      AND t."id" IS NOT NEW."id"
      AND t."id" IS NOT NULL
  )
  AND (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1 BEGIN
    INSERT INTO _replaced (table_name, row_id, version, row_data)
    SELECT 'items', t."id", coalesce(
      (
        SELECT version
        FROM _stamps
        WHERE table_name = 'items'
          AND row_id = t."id"
          AND NOT (
            (
              (
                t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                  AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
              ) IS TRUE
            )
              AND t."updated_at" > version
          )
      ),
      iif(
        (
          (
            t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
              AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
          ) IS TRUE
        ),
        t."updated_at",
        CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)
      )
    ), (
      SELECT json_group_object(
        k,
        CASE
          WHEN v BETWEEN -9007199254740991 AND 9007199254740991
            AND typeof(v) = 'integer' THEN v
          ELSE CASE
            typeof(v)
            WHEN 'integer' THEN CAST(v AS TEXT)
            WHEN 'real' THEN CASE
              WHEN v > 1.7976931348623157e308 THEN '9e999'
              WHEN v < -1.7976931348623157e308 THEN '-9e999'
              ELSE CASE WHEN CAST(CAST(v AS TEXT) AS REAL) = v THEN v ELSE json(printf('%!.17g', v)) END
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
      FROM (
        SELECT 'id' AS k, +t."id" AS v
        UNION ALL
        SELECT 'email' AS k, +t."email" AS v
        UNION ALL
        SELECT 'updated_at' AS k, +coalesce(
          (
            SELECT version
            FROM _stamps
            WHERE table_name = 'items'
              AND row_id = t."id"
              AND NOT (
                (
                  (
                    t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                      AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
                  ) IS TRUE
                )
                  AND t."updated_at" > version
              )
          ),
          iif(
            (
              (
                t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                  AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
              ) IS TRUE
            ),
            t."updated_at",
            CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)
          )
        ) AS v
      )
    )
    FROM "items" AS t
    WHERE t."id" IN (
      SELECT t."id"
      FROM "items" AS t
      WHERE t."email" = NEW."email" COLLATE "NOCASE"
      UNION ALL
      SELECT t."id"
      FROM "items" AS t
      WHERE t.rowid = NEW.rowid
    )
      AND t."id" IS NOT NEW."id"
      AND t."id" IS NOT NULL
    ON CONFLICT (table_name, row_id) DO UPDATE SET version = excluded.version,
    row_data = excluded.row_data;
  END;

CREATE TRIGGER "_rowcast_items_insert_replaced" AFTER INSERT
ON "items"
FOR EACH ROW
WHEN EXISTS (SELECT 1 FROM _replaced WHERE table_name = 'items')
  AND (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1 BEGIN
    INSERT INTO _changes (op, table_name, row_id, row_data)
    SELECT 'DELETE', 'items', r.row_id, r.row_data
    FROM _replaced AS r
    WHERE r.table_name = 'items'
      AND NOT EXISTS (SELECT 1 FROM "items" AS t WHERE t."id" = r.row_id)
      AND NOT EXISTS (
        SELECT 1
        FROM _hidden AS e
        WHERE e.table_name = 'items'
          AND e.row_id = r.row_id
          AND e.version >= r.version
      )
      AND NOT EXISTS (
        SELECT 1
        FROM _tombstones AS e
        WHERE e.table_name = 'items'
          AND e.row_id = r.row_id
          AND e.version >= r.version
      );
    INSERT INTO _tombstones (table_name, row_id, version)
    SELECT 'items', r.row_id, r.version
    FROM _replaced AS r
    WHERE r.table_name = 'items'
      AND NOT EXISTS (SELECT 1 FROM "items" AS t WHERE t."id" = r.row_id)
      AND NOT EXISTS (
        SELECT 1
        FROM _hidden AS e
        WHERE e.table_name = 'items'
          AND e.row_id = r.row_id
          AND e.version >= r.version
      )
    ON CONFLICT DO UPDATE SET version = excluded.version
    WHERE excluded.version > version;
    DELETE
    FROM _replaced
    WHERE table_name = 'items';
  END;

CREATE TRIGGER "_rowcast_items_update_clash" BEFORE UPDATE OF "email",
rowid,
_rowid_,
oid
ON "items"
FOR EACH ROW
WHEN (changes() <> 7 OR (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1)
  AND EXISTS (
    SELECT 1
    FROM "items" AS t
    WHERE t."id" IN (
      SELECT t."id"
      FROM "items" AS t
      WHERE t."email" = NEW."email" COLLATE "NOCASE"
      UNION ALL
      SELECT t."id"
      FROM "items" AS t
      WHERE t.rowid = NEW.rowid
    )
      AND t."id" IS NOT OLD."id"
      AND t."id" IS NOT NULL
  )
  AND (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1 BEGIN
    INSERT INTO _replaced (table_name, row_id, version, row_data)
    SELECT 'items', t."id", coalesce(
      (
        SELECT version
        FROM _stamps
        WHERE table_name = 'items'
          AND row_id = t."id"
          AND NOT (
            (
              (
                t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                  AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
              ) IS TRUE
            )
              AND t."updated_at" > version
          )
      ),
      iif(
        (
          (
            t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
              AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
          ) IS TRUE
        ),
        t."updated_at",
        CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)
      )
    ), (
      SELECT json_group_object(
        k,
        CASE
          WHEN v BETWEEN -9007199254740991 AND 9007199254740991
            AND typeof(v) = 'integer' THEN v
          ELSE CASE
            typeof(v)
            WHEN 'integer' THEN CAST(v AS TEXT)
            WHEN 'real' THEN CASE
              WHEN v > 1.7976931348623157e308 THEN '9e999'
              WHEN v < -1.7976931348623157e308 THEN '-9e999'
              ELSE CASE WHEN CAST(CAST(v AS TEXT) AS REAL) = v THEN v ELSE json(printf('%!.17g', v)) END
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
      FROM (
        SELECT 'id' AS k, +t."id" AS v
        UNION ALL
        SELECT 'email' AS k, +t."email" AS v
        UNION ALL
        SELECT 'updated_at' AS k, +coalesce(
          (
            SELECT version
            FROM _stamps
            WHERE table_name = 'items'
              AND row_id = t."id"
              AND NOT (
                (
                  (
                    t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                      AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
                  ) IS TRUE
                )
                  AND t."updated_at" > version
              )
          ),
          iif(
            (
              (
                t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                  AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
              ) IS TRUE
            ),
            t."updated_at",
            CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)
          )
        ) AS v
      )
    )
    FROM "items" AS t
    WHERE t."id" IN (
      SELECT t."id"
      FROM "items" AS t
      WHERE t."email" = NEW."email" COLLATE "NOCASE"
      UNION ALL
      SELECT t."id"
      FROM "items" AS t
      WHERE t.rowid = NEW.rowid
    )
      AND t."id" IS NOT OLD."id"
      AND t."id" IS NOT NULL
    ON CONFLICT (table_name, row_id) DO UPDATE SET version = excluded.version,
    row_data = excluded.row_data;
  END;

CREATE TRIGGER "_rowcast_items_update_replaced" AFTER UPDATE OF "email",
rowid,
_rowid_,
oid
ON "items"
FOR EACH ROW
WHEN EXISTS (SELECT 1 FROM _replaced WHERE table_name = 'items')
  AND (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1 BEGIN
    INSERT INTO _changes (op, table_name, row_id, row_data)
    SELECT 'DELETE', 'items', r.row_id, r.row_data
    FROM _replaced AS r
    WHERE r.table_name = 'items'
      AND NOT EXISTS (SELECT 1 FROM "items" AS t WHERE t."id" = r.row_id)
      AND NOT EXISTS (
        SELECT 1
        FROM _hidden AS e
        WHERE e.table_name = 'items'
          AND e.row_id = r.row_id
          AND e.version >= r.version
      )
      AND NOT EXISTS (
        SELECT 1
        FROM _tombstones AS e
        WHERE e.table_name = 'items'
          AND e.row_id = r.row_id
          AND e.version >= r.version
      );
    INSERT INTO _tombstones (table_name, row_id, version)
    SELECT 'items', r.row_id, r.version
    FROM _replaced AS r
    WHERE r.table_name = 'items'
      AND NOT EXISTS (SELECT 1 FROM "items" AS t WHERE t."id" = r.row_id)
      AND NOT EXISTS (
        SELECT 1
        FROM _hidden AS e
        WHERE e.table_name = 'items'
          AND e.row_id = r.row_id
          AND e.version >= r.version
      )
    ON CONFLICT DO UPDATE SET version = excluded.version
    WHERE excluded.version > version;
    DELETE
    FROM _replaced
    WHERE table_name = 'items';
  END;

CREATE TRIGGER "_rowcast_items_insert_stamp" AFTER INSERT
ON "items"
FOR EACH ROW
WHEN (changes() <> 7 OR (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1)
  AND (
    NOT (
      (
        NEW."updated_at" BETWEEN -8640000000000000 AND 7258118400000
          AND NEW."updated_at" = CAST(NEW."updated_at" AS INTEGER)
      ) IS TRUE
    )
      OR EXISTS (
        SELECT 1
        FROM _tombstones
        WHERE table_name = 'items'
          AND row_id = NEW."id"
          AND version >= NEW."updated_at"
      )
      OR EXISTS (
        SELECT 1 FROM _stamps WHERE table_name = 'items' AND row_id = NEW."id" AND version >= NEW."updated_at"
      )
      OR EXISTS (
        SELECT 1 FROM _hidden WHERE table_name = 'items' AND row_id = NEW."id" AND version >= NEW."updated_at"
      )
  )
  AND (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1 BEGIN
    INSERT INTO _stamps (table_name, row_id, version)
    SELECT 'items', t."id", min(
      7258118400000,
      max(
        iif(
          (
            (
              t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
            ) IS TRUE
          ),
          t."updated_at",
          CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)
        ),
        max(
          coalesce(s.version, -8640000000000000),
          coalesce(
            (
              SELECT max(version)
              FROM (
                SELECT version
                FROM _tombstones
                WHERE table_name = 'items'
                  AND row_id = t."id"
                UNION ALL
                SELECT version
                FROM _hidden
                WHERE table_name = 'items'
                  AND row_id = t."id"
              )
            ),
            -8640000000000000
          )
        ) + 1
      )
    )
    FROM "items" AS t
    LEFT JOIN _stamps AS s
    ON s.table_name = 'items'
      AND s.row_id = t."id"
    WHERE t.rowid = NEW.rowid
      AND t."id" IS NOT NULL
      AND NOT (
        (
          (
            t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
              AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
          ) IS TRUE
        )
          AND t."updated_at" > max(
            coalesce(s.version, -8640000000000000),
            coalesce(
              (
                SELECT max(version)
                FROM (
                  SELECT version
                  FROM _tombstones
                  WHERE table_name = 'items'
                    AND row_id = t."id"
                  UNION ALL
                  SELECT version
                  FROM _hidden
                  WHERE table_name = 'items'
                    AND row_id = t."id"
                )
              ),
              -8640000000000000
            )
          )
      )
    ON CONFLICT DO UPDATE SET version = max(version, excluded.version),
    refused = NULL;
    INSERT INTO _changes (op, table_name, row_id, row_data)
    SELECT 'INSERT', 'items', t."id", (
      SELECT json_group_object(
        k,
        CASE
          WHEN v BETWEEN -9007199254740991 AND 9007199254740991
            AND typeof(v) = 'integer' THEN v
          ELSE CASE
            typeof(v)
            WHEN 'integer' THEN CAST(v AS TEXT)
            WHEN 'real' THEN CASE
              WHEN v > 1.7976931348623157e308 THEN '9e999'
              WHEN v < -1.7976931348623157e308 THEN '-9e999'
              ELSE CASE WHEN CAST(CAST(v AS TEXT) AS REAL) = v THEN v ELSE json(printf('%!.17g', v)) END
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
      FROM (
        SELECT 'id' AS k, +t."id" AS v
        UNION ALL
        SELECT 'email' AS k, +t."email" AS v
        UNION ALL
        SELECT 'updated_at' AS k, +coalesce(
          s.version,
          iif(
            (
              (
                t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                  AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
              ) IS TRUE
            ),
            t."updated_at",
            CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)
          )
        ) AS v
      )
    )
    FROM "items" AS t
    LEFT JOIN _stamps AS s
    ON s.table_name = 'items'
      AND s.row_id = t."id"
    WHERE t.rowid = NEW.rowid
      AND (
        t."id" IS NULL
          OR NOT (
            (
              (
                t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                  AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
              ) IS TRUE
            )
              AND t."updated_at" > s.version
          )
      );
  END;

CREATE TRIGGER "_rowcast_items_rename" AFTER UPDATE OF "id"
ON "items"
FOR EACH ROW
WHEN OLD."id" IS NOT NEW."id"
  AND OLD."id" IS NOT NULL
  AND (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1 BEGIN
    INSERT INTO _changes (op, table_name, row_id, row_data)
    VALUES (
      'DELETE',
      'items',
      OLD."id",
      (
        SELECT json_group_object(
          k,
          CASE
            WHEN v BETWEEN -9007199254740991 AND 9007199254740991
              AND typeof(v) = 'integer' THEN v
            ELSE CASE
              typeof(v)
              WHEN 'integer' THEN CAST(v AS TEXT)
              WHEN 'real' THEN CASE
                WHEN v > 1.7976931348623157e308 THEN '9e999'
                WHEN v < -1.7976931348623157e308 THEN '-9e999'
                ELSE CASE WHEN CAST(CAST(v AS TEXT) AS REAL) = v THEN v ELSE json(printf('%!.17g', v)) END
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
        FROM (
          SELECT 'id' AS k, +OLD."id" AS v
          UNION ALL
          SELECT 'email' AS k, +OLD."email" AS v
          UNION ALL
          SELECT 'updated_at' AS k, +coalesce(
            (
              SELECT version
              FROM _stamps
              WHERE table_name = 'items'
                AND row_id = OLD."id"
                AND NOT (
                  (
                    (
                      OLD."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                        AND OLD."updated_at" = CAST(OLD."updated_at" AS INTEGER)
                    ) IS TRUE
                  )
                    AND OLD."updated_at" > version
                )
            ),
            iif(
              (
                (
                  OLD."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                    AND OLD."updated_at" = CAST(OLD."updated_at" AS INTEGER)
                ) IS TRUE
              ),
              OLD."updated_at",
              CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)
            )
          ) AS v
        )
      )
    );
    INSERT INTO _tombstones (table_name, row_id, version)
    SELECT 'items', OLD."id", coalesce(
      (
        SELECT version
        FROM _stamps
        WHERE table_name = 'items'
          AND row_id = OLD."id"
          AND NOT (
            (
              (
                OLD."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                  AND OLD."updated_at" = CAST(OLD."updated_at" AS INTEGER)
              ) IS TRUE
            )
              AND OLD."updated_at" > version
          )
      ),
      iif(
        (
          (
            OLD."updated_at" BETWEEN -8640000000000000 AND 7258118400000
              AND OLD."updated_at" = CAST(OLD."updated_at" AS INTEGER)
          ) IS TRUE
        ),
        OLD."updated_at",
        CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)
      )
    )
    WHERE OLD."id" IS NOT NULL
    ON CONFLICT DO UPDATE SET version = max(version, excluded.version);
  END;

CREATE TRIGGER "_rowcast_items_update_stamp" AFTER UPDATE
ON "items"
FOR EACH ROW
WHEN (
  NOT (
    (
      (
        NEW."updated_at" BETWEEN -8640000000000000 AND 7258118400000
          AND NEW."updated_at" = CAST(NEW."updated_at" AS INTEGER)
      ) IS TRUE
    )
      AND (
        NEW."updated_at" > OLD."updated_at"
          OR NOT (
            (
              OLD."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                AND OLD."updated_at" = CAST(OLD."updated_at" AS INTEGER)
            ) IS TRUE
          )
      )
  )
    OR EXISTS (
      SELECT 1 FROM _stamps WHERE table_name = 'items' AND row_id = NEW."id" AND version >= NEW."updated_at"
    )
)
  AND (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1 BEGIN
    INSERT INTO _changes (op, table_name, row_id, row_data, base)
    SELECT 'UPDATE', 'items', t."id", CASE
      WHEN NOT (
        (t."id" COLLATE BINARY >= '%' AND t."id" < x'' OR t."id" COLLATE BINARY < '$')
          AND (t."email" COLLATE BINARY >= '%' AND t."email" < x'' OR t."email" COLLATE BINARY < '$')
      ) THEN (
        SELECT json_group_object(
          k,
          CASE
            WHEN v BETWEEN -9007199254740991 AND 9007199254740991
              AND typeof(v) = 'integer' THEN v
            ELSE CASE
              typeof(v)
              WHEN 'integer' THEN CAST(v AS TEXT)
              WHEN 'real' THEN CASE
                WHEN v > 1.7976931348623157e308 THEN '9e999'
                WHEN v < -1.7976931348623157e308 THEN '-9e999'
                ELSE CASE WHEN CAST(CAST(v AS TEXT) AS REAL) = v THEN v ELSE json(printf('%!.17g', v)) END
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
        FROM (
          SELECT 'id' AS k, +t."id" AS v
          UNION ALL
          SELECT 'email' AS k, +t."email" AS v
          UNION ALL
          SELECT 'updated_at' AS k, +iif(
            t."id" IS NULL,
            iif(
              (
                (
                  t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                    AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
                ) IS TRUE
              ),
              t."updated_at",
              CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)
            ),
            min(
              7258118400000,
              max(
                iif(
                  (
                    (
                      t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                        AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
                    ) IS TRUE
                  )
                    AND t."updated_at" IS NOT OLD."updated_at",
                  t."updated_at",
                  CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)
                ),
                max(
                  coalesce(s.version, -8640000000000000),
                  coalesce(
                    iif(
                      (
                        (
                          OLD."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                            AND OLD."updated_at" = CAST(OLD."updated_at" AS INTEGER)
                        ) IS TRUE
                      ),
                      OLD."updated_at",
                      NULL
                    ),
                    -8640000000000000
                  )
                ) + 1
              )
            )
          ) AS v
        )
      )
      ELSE json_object(
        'id',
        t."id" || '',
        'email',
        t."email" || '',
        'updated_at',
        iif(
          t."id" IS NULL,
          iif(
            (
              (
                t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                  AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
              ) IS TRUE
            ),
            t."updated_at",
            CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)
          ),
          min(
            7258118400000,
            max(
              iif(
                (
                  (
                    t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                      AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
                  ) IS TRUE
                )
                  AND t."updated_at" IS NOT OLD."updated_at",
                t."updated_at",
                CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)
              ),
              max(
                coalesce(s.version, -8640000000000000),
                coalesce(
                  iif(
                    (
                      (
                        OLD."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                          AND OLD."updated_at" = CAST(OLD."updated_at" AS INTEGER)
                      ) IS TRUE
                    ),
                    OLD."updated_at",
                    NULL
                  ),
                  -8640000000000000
                )
              ) + 1
            )
          )
        )
      )
    END, iif(
      t."id" IS OLD."id",
      nullif(
        max(
          coalesce(s.version, -8640000000000000),
          coalesce(
            iif(
              (
                (
                  OLD."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                    AND OLD."updated_at" = CAST(OLD."updated_at" AS INTEGER)
                ) IS TRUE
              ),
              OLD."updated_at",
              NULL
            ),
            -8640000000000000
          )
        ),
        -8640000000000000
      ),
      NULL
    )
    FROM "items" AS t
    LEFT JOIN _stamps AS s
    ON s.table_name = 'items'
      AND s.row_id = t."id"
    WHERE t.rowid = NEW.rowid
      AND (
        t."id" IS NULL
          OR NOT (
            (
              (
                t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                  AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
              ) IS TRUE
            )
              AND t."updated_at" > max(
                coalesce(s.version, -8640000000000000),
                coalesce(
                  iif(
                    (
                      (
                        OLD."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                          AND OLD."updated_at" = CAST(OLD."updated_at" AS INTEGER)
                      ) IS TRUE
                    ),
                    OLD."updated_at",
                    NULL
                  ),
                  -8640000000000000
                )
              )
          )
      );
    INSERT INTO _stamps (table_name, row_id, version)
    SELECT 'items', t."id", min(
      7258118400000,
      max(
        iif(
          (
            (
              t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
            ) IS TRUE
          )
            AND t."updated_at" IS NOT OLD."updated_at",
          t."updated_at",
          CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)
        ),
        max(
          coalesce(s.version, -8640000000000000),
          coalesce(
            iif(
              (
                (
                  OLD."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                    AND OLD."updated_at" = CAST(OLD."updated_at" AS INTEGER)
                ) IS TRUE
              ),
              OLD."updated_at",
              NULL
            ),
            -8640000000000000
          )
        ) + 1
      )
    )
    FROM "items" AS t
    LEFT JOIN _stamps AS s
    ON s.table_name = 'items'
      AND s.row_id = t."id"
    WHERE t.rowid = NEW.rowid
      AND t."id" IS NOT NULL
      AND NOT (
        (
          (
            t."updated_at" BETWEEN -8640000000000000 AND 7258118400000
              AND t."updated_at" = CAST(t."updated_at" AS INTEGER)
          ) IS TRUE
        )
          AND t."updated_at" > max(
            coalesce(s.version, -8640000000000000),
            coalesce(
              iif(
                (
                  (
                    OLD."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                      AND OLD."updated_at" = CAST(OLD."updated_at" AS INTEGER)
                  ) IS TRUE
                ),
                OLD."updated_at",
                NULL
              ),
              -8640000000000000
            )
          )
      )
    ON CONFLICT DO UPDATE SET version = max(version, excluded.version),
    refused = NULL;
  END;

CREATE TRIGGER "_rowcast_items_insert" AFTER INSERT
ON "items"
FOR EACH ROW
WHEN (
  (
    NEW."updated_at" BETWEEN -8640000000000000 AND 7258118400000
      AND NEW."updated_at" = CAST(NEW."updated_at" AS INTEGER)
  ) IS TRUE
)
  AND (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1 BEGIN
    INSERT INTO _changes (op, table_name, row_id, row_data)
    VALUES (
      'INSERT',
      'items',
      NEW."id",
      CASE
        WHEN NOT (
          (NEW."id" COLLATE BINARY >= '%' AND NEW."id" < x'' OR NEW."id" COLLATE BINARY < '$')
            AND (NEW."email" COLLATE BINARY >= '%' AND NEW."email" < x'' OR NEW."email" COLLATE BINARY < '$')
        ) THEN (
          SELECT json_group_object(
            k,
            CASE
              WHEN v BETWEEN -9007199254740991 AND 9007199254740991
                AND typeof(v) = 'integer' THEN v
              ELSE CASE
                typeof(v)
                WHEN 'integer' THEN CAST(v AS TEXT)
                WHEN 'real' THEN CASE
                  WHEN v > 1.7976931348623157e308 THEN '9e999'
                  WHEN v < -1.7976931348623157e308 THEN '-9e999'
                  ELSE CASE WHEN CAST(CAST(v AS TEXT) AS REAL) = v THEN v ELSE json(printf('%!.17g', v)) END
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
          FROM (
            SELECT 'id' AS k, +NEW."id" AS v
            UNION ALL
            SELECT 'email' AS k, +NEW."email" AS v
            UNION ALL
            SELECT 'updated_at' AS k, +NEW."updated_at" AS v
          )
        )
        ELSE json_object('id', NEW."id" || '', 'email', NEW."email" || '', 'updated_at', NEW."updated_at")
      END
    );
  END;

CREATE TRIGGER "_rowcast_items_update" AFTER UPDATE
ON "items"
FOR EACH ROW
WHEN (
  (
    (
      NEW."updated_at" BETWEEN -8640000000000000 AND 7258118400000
        AND NEW."updated_at" = CAST(NEW."updated_at" AS INTEGER)
    ) IS TRUE
  )
    AND (
      NEW."updated_at" > OLD."updated_at"
        OR NOT (
          (
            OLD."updated_at" BETWEEN -8640000000000000 AND 7258118400000
              AND OLD."updated_at" = CAST(OLD."updated_at" AS INTEGER)
          ) IS TRUE
        )
    )
)
  AND (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1 BEGIN
    INSERT INTO _changes (op, table_name, row_id, row_data, base)
    VALUES (
      'UPDATE',
      'items',
      NEW."id",
      CASE
        WHEN NOT (
          (NEW."id" COLLATE BINARY >= '%' AND NEW."id" < x'' OR NEW."id" COLLATE BINARY < '$')
            AND (NEW."email" COLLATE BINARY >= '%' AND NEW."email" < x'' OR NEW."email" COLLATE BINARY < '$')
        ) THEN (
          SELECT json_group_object(
            k,
            CASE
              WHEN v BETWEEN -9007199254740991 AND 9007199254740991
                AND typeof(v) = 'integer' THEN v
              ELSE CASE
                typeof(v)
                WHEN 'integer' THEN CAST(v AS TEXT)
                WHEN 'real' THEN CASE
                  WHEN v > 1.7976931348623157e308 THEN '9e999'
                  WHEN v < -1.7976931348623157e308 THEN '-9e999'
                  ELSE CASE WHEN CAST(CAST(v AS TEXT) AS REAL) = v THEN v ELSE json(printf('%!.17g', v)) END
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
          FROM (
            SELECT 'id' AS k, +NEW."id" AS v
            UNION ALL
            SELECT 'email' AS k, +NEW."email" AS v
            UNION ALL
            SELECT 'updated_at' AS k, +NEW."updated_at" AS v
          )
        )
        ELSE json_object('id', NEW."id" || '', 'email', NEW."email" || '', 'updated_at', NEW."updated_at")
      END,
      iif(
        OLD."id" IS NEW."id",
        coalesce(
          (
            SELECT max(version, OLD."updated_at")
            FROM _stamps
            WHERE table_name = 'items'
              AND row_id = OLD."id"
          ),
          OLD."updated_at"
        ),
        NULL
      )
    );
  END;

CREATE TRIGGER "_rowcast_items_delete_stamp" AFTER DELETE
ON "items"
FOR EACH ROW
WHEN (
  NOT (
    (
      OLD."updated_at" BETWEEN -8640000000000000 AND 7258118400000
        AND OLD."updated_at" = CAST(OLD."updated_at" AS INTEGER)
    ) IS TRUE
  )
    OR EXISTS (SELECT 1 FROM _stamps WHERE table_name = 'items' AND row_id = OLD."id")
)
  AND (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1 BEGIN
    INSERT INTO _changes (op, table_name, row_id, row_data)
    VALUES (
      'DELETE',
      'items',
      OLD."id",
      (
        SELECT json_group_object(
          k,
          CASE
            WHEN v BETWEEN -9007199254740991 AND 9007199254740991
              AND typeof(v) = 'integer' THEN v
            ELSE CASE
              typeof(v)
              WHEN 'integer' THEN CAST(v AS TEXT)
              WHEN 'real' THEN CASE
                WHEN v > 1.7976931348623157e308 THEN '9e999'
                WHEN v < -1.7976931348623157e308 THEN '-9e999'
                ELSE CASE WHEN CAST(CAST(v AS TEXT) AS REAL) = v THEN v ELSE json(printf('%!.17g', v)) END
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
        FROM (
          SELECT 'id' AS k, +OLD."id" AS v
          UNION ALL
          SELECT 'email' AS k, +OLD."email" AS v
          UNION ALL
          SELECT 'updated_at' AS k, +coalesce(
            (
              SELECT version
              FROM _stamps
              WHERE table_name = 'items'
                AND row_id = OLD."id"
                AND NOT (
                  (
                    (
                      OLD."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                        AND OLD."updated_at" = CAST(OLD."updated_at" AS INTEGER)
                    ) IS TRUE
                  )
                    AND OLD."updated_at" > version
                )
            ),
            iif(
              (
                (
                  OLD."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                    AND OLD."updated_at" = CAST(OLD."updated_at" AS INTEGER)
                ) IS TRUE
              ),
              OLD."updated_at",
              CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)
            )
          ) AS v
        )
      )
    );
    INSERT INTO _tombstones (table_name, row_id, version)
    SELECT 'items', OLD."id", coalesce(
      (
        SELECT version
        FROM _stamps
        WHERE table_name = 'items'
          AND row_id = OLD."id"
          AND NOT (
            (
              (
                OLD."updated_at" BETWEEN -8640000000000000 AND 7258118400000
                  AND OLD."updated_at" = CAST(OLD."updated_at" AS INTEGER)
              ) IS TRUE
            )
              AND OLD."updated_at" > version
          )
      ),
      iif(
        (
          (
            OLD."updated_at" BETWEEN -8640000000000000 AND 7258118400000
              AND OLD."updated_at" = CAST(OLD."updated_at" AS INTEGER)
          ) IS TRUE
        ),
        OLD."updated_at",
        CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)
      )
    )
    WHERE OLD."id" IS NOT NULL
    ON CONFLICT DO UPDATE SET version = max(version, excluded.version);
  END;

CREATE TRIGGER "_rowcast_items_delete" AFTER DELETE
ON "items"
FOR EACH ROW
WHEN (
  (
    OLD."updated_at" BETWEEN -8640000000000000 AND 7258118400000
      AND OLD."updated_at" = CAST(OLD."updated_at" AS INTEGER)
  ) IS TRUE
)
  AND (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1 BEGIN
    INSERT INTO _changes (op, table_name, row_id, row_data)
    VALUES (
      'DELETE',
      'items',
      OLD."id",
      CASE
        WHEN NOT (
          (OLD."id" COLLATE BINARY >= '%' AND OLD."id" < x'' OR OLD."id" COLLATE BINARY < '$')
            AND (OLD."email" COLLATE BINARY >= '%' AND OLD."email" < x'' OR OLD."email" COLLATE BINARY < '$')
        ) THEN (
          SELECT json_group_object(
            k,
            CASE
              WHEN v BETWEEN -9007199254740991 AND 9007199254740991
                AND typeof(v) = 'integer' THEN v
              ELSE CASE
                typeof(v)
                WHEN 'integer' THEN CAST(v AS TEXT)
                WHEN 'real' THEN CASE
                  WHEN v > 1.7976931348623157e308 THEN '9e999'
                  WHEN v < -1.7976931348623157e308 THEN '-9e999'
                  ELSE CASE WHEN CAST(CAST(v AS TEXT) AS REAL) = v THEN v ELSE json(printf('%!.17g', v)) END
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
          FROM (
            SELECT 'id' AS k, +OLD."id" AS v
            UNION ALL
            SELECT 'email' AS k, +OLD."email" AS v
            UNION ALL
            SELECT 'updated_at' AS k, +OLD."updated_at" AS v
          )
        )
        ELSE json_object('id', OLD."id" || '', 'email', OLD."email" || '', 'updated_at', OLD."updated_at")
      END
    );
    INSERT INTO _tombstones (table_name, row_id, version)
    SELECT 'items', OLD."id", OLD."updated_at"
    WHERE OLD."id" IS NOT NULL
    ON CONFLICT DO UPDATE SET version = max(version, excluded.version);
  END;
