CREATE TRIGGER "_rowcast_items_insert_floor" BEFORE INSERT
ON "items"
FOR EACH ROW
WHEN (changes() <> 7 OR (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1)
  AND (
    EXISTS (
      SELECT 1 FROM "items" AS t WHERE t.rowid = NEW.rowid AND t."id" IS NOT NEW."id" AND t."id" IS NOT NULL
    )
      OR EXISTS (SELECT 1 FROM "items" WHERE "id" = NEW."id")
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
    ), NULL
    FROM "items" AS t
    WHERE t.rowid = NEW.rowid
      AND t."id" IS NOT NEW."id"
      AND t."id" IS NOT NULL
    ON CONFLICT (table_name, row_id) DO UPDATE SET version = excluded.version,
    row_data = excluded.row_data;
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
  END;

CREATE TRIGGER "_rowcast_items_update_clash" BEFORE UPDATE OF rowid,
_rowid_,
oid
ON "items"
FOR EACH ROW
WHEN (changes() <> 7 OR (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1)
  AND EXISTS (
    SELECT 1 FROM "items" AS t WHERE t.rowid = NEW.rowid AND t."id" IS NOT OLD."id" AND t."id" IS NOT NULL
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
    ), NULL
    FROM "items" AS t
    WHERE t.rowid = NEW.rowid
      AND t."id" IS NOT OLD."id"
      AND t."id" IS NOT NULL
    ON CONFLICT (table_name, row_id) DO UPDATE SET version = excluded.version,
    row_data = excluded.row_data;
  END;

CREATE TRIGGER "_rowcast_items_update_replaced" AFTER UPDATE OF rowid,
_rowid_,
oid
ON "items"
FOR EACH ROW
WHEN EXISTS (SELECT 1 FROM _replaced WHERE table_name = 'items')
  AND (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1 BEGIN
    INSERT INTO _changes (op, table_name, row_id, row_data)
    SELECT 'DELETE', 'items', r.row_id, json_object(
      'id',
      CASE
        WHEN r.row_id COLLATE BINARY >= '%'
          AND r.row_id < x'' THEN r.row_id || ''
        WHEN r.row_id >= x'' THEN '$blob:' || hex(r.row_id)
        WHEN (r.row_id COLLATE BINARY >= '$' AND r.row_id COLLATE BINARY < '%') THEN CASE
          WHEN r.row_id GLOB '$blob:*'
            OR r.row_id GLOB '$text:*'
            OR r.row_id GLOB '$int:*'
            OR r.row_id GLOB '$real:*'
            OR r.row_id GLOB '$bytes:*' THEN '$text:' || r.row_id
          ELSE r.row_id || ''
        END
        ELSE r.row_id || ''
      END,
      'updated_at',
      r.version
    )
    FROM _replaced AS r
    WHERE r.table_name = 'items'
      AND NOT EXISTS (SELECT 1 FROM "items" AS t WHERE t."id" = r.row_id)
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
      OR EXISTS (SELECT 1 FROM _replaced WHERE table_name = 'items')
  )
  AND (SELECT value FROM _meta WHERE key = 'syncing') IS NOT 1 BEGIN
    INSERT INTO _changes (op, table_name, row_id, row_data)
    SELECT 'DELETE', 'items', r.row_id, json_object(
      'id',
      CASE
        WHEN r.row_id COLLATE BINARY >= '%'
          AND r.row_id < x'' THEN r.row_id || ''
        WHEN r.row_id >= x'' THEN '$blob:' || hex(r.row_id)
        WHEN (r.row_id COLLATE BINARY >= '$' AND r.row_id COLLATE BINARY < '%') THEN CASE
          WHEN r.row_id GLOB '$blob:*'
            OR r.row_id GLOB '$text:*'
            OR r.row_id GLOB '$int:*'
            OR r.row_id GLOB '$real:*'
            OR r.row_id GLOB '$bytes:*' THEN '$text:' || r.row_id
          ELSE r.row_id || ''
        END
        ELSE r.row_id || ''
      END,
      'updated_at',
      r.version
    )
    FROM _replaced AS r
    WHERE r.table_name = 'items'
      AND NOT EXISTS (SELECT 1 FROM "items" AS t WHERE t."id" = r.row_id)
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
    ON CONFLICT DO UPDATE SET version = excluded.version
    WHERE excluded.version > version;
    DELETE
    FROM _replaced
    WHERE table_name = 'items';
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
            (SELECT version FROM _tombstones WHERE table_name = 'items' AND row_id = t."id"),
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
              (SELECT version FROM _tombstones WHERE table_name = 'items' AND row_id = t."id"),
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
        SELECT 'name' AS k, +t."name" AS v
        UNION ALL
        SELECT 'value' AS k, +t."value" AS v
        UNION ALL
        SELECT 'created_at' AS k, +t."created_at" AS v
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
          SELECT 'name' AS k, +OLD."name" AS v
          UNION ALL
          SELECT 'value' AS k, +OLD."value" AS v
          UNION ALL
          SELECT 'created_at' AS k, +OLD."created_at" AS v
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
          AND (t."name" COLLATE BINARY >= '%' AND t."name" < x'' OR t."name" COLLATE BINARY < '$')
          AND (
            t."value" BETWEEN -9007199254740991 AND 9007199254740991
              AND t."value" = CAST(t."value" AS INTEGER)
          )
          AND (
            t."created_at" BETWEEN -9007199254740991 AND 9007199254740991
              AND t."created_at" = CAST(t."created_at" AS INTEGER)
          )
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
          SELECT 'name' AS k, +t."name" AS v
          UNION ALL
          SELECT 'value' AS k, +t."value" AS v
          UNION ALL
          SELECT 'created_at' AS k, +t."created_at" AS v
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
        'name',
        t."name" || '',
        'value',
        t."value",
        'created_at',
        t."created_at",
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
            AND (NEW."name" COLLATE BINARY >= '%' AND NEW."name" < x'' OR NEW."name" COLLATE BINARY < '$')
            AND (
              NEW."value" BETWEEN -9007199254740991 AND 9007199254740991
                AND NEW."value" = CAST(NEW."value" AS INTEGER)
            )
            AND (
              NEW."created_at" BETWEEN -9007199254740991 AND 9007199254740991
                AND NEW."created_at" = CAST(NEW."created_at" AS INTEGER)
            )
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
            SELECT 'name' AS k, +NEW."name" AS v
            UNION ALL
            SELECT 'value' AS k, +NEW."value" AS v
            UNION ALL
            SELECT 'created_at' AS k, +NEW."created_at" AS v
            UNION ALL
            SELECT 'updated_at' AS k, +NEW."updated_at" AS v
          )
        )
        ELSE json_object(
          'id',
          NEW."id" || '',
          'name',
          NEW."name" || '',
          'value',
          NEW."value",
          'created_at',
          NEW."created_at",
          'updated_at',
          NEW."updated_at"
        )
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
            AND (NEW."name" COLLATE BINARY >= '%' AND NEW."name" < x'' OR NEW."name" COLLATE BINARY < '$')
            AND (
              NEW."value" BETWEEN -9007199254740991 AND 9007199254740991
                AND NEW."value" = CAST(NEW."value" AS INTEGER)
            )
            AND (
              NEW."created_at" BETWEEN -9007199254740991 AND 9007199254740991
                AND NEW."created_at" = CAST(NEW."created_at" AS INTEGER)
            )
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
            SELECT 'name' AS k, +NEW."name" AS v
            UNION ALL
            SELECT 'value' AS k, +NEW."value" AS v
            UNION ALL
            SELECT 'created_at' AS k, +NEW."created_at" AS v
            UNION ALL
            SELECT 'updated_at' AS k, +NEW."updated_at" AS v
          )
        )
        ELSE json_object(
          'id',
          NEW."id" || '',
          'name',
          NEW."name" || '',
          'value',
          NEW."value",
          'created_at',
          NEW."created_at",
          'updated_at',
          NEW."updated_at"
        )
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
          SELECT 'name' AS k, +OLD."name" AS v
          UNION ALL
          SELECT 'value' AS k, +OLD."value" AS v
          UNION ALL
          SELECT 'created_at' AS k, +OLD."created_at" AS v
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
            AND (OLD."name" COLLATE BINARY >= '%' AND OLD."name" < x'' OR OLD."name" COLLATE BINARY < '$')
            AND (
              OLD."value" BETWEEN -9007199254740991 AND 9007199254740991
                AND OLD."value" = CAST(OLD."value" AS INTEGER)
            )
            AND (
              OLD."created_at" BETWEEN -9007199254740991 AND 9007199254740991
                AND OLD."created_at" = CAST(OLD."created_at" AS INTEGER)
            )
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
            SELECT 'name' AS k, +OLD."name" AS v
            UNION ALL
            SELECT 'value' AS k, +OLD."value" AS v
            UNION ALL
            SELECT 'created_at' AS k, +OLD."created_at" AS v
            UNION ALL
            SELECT 'updated_at' AS k, +OLD."updated_at" AS v
          )
        )
        ELSE json_object(
          'id',
          OLD."id" || '',
          'name',
          OLD."name" || '',
          'value',
          OLD."value",
          'created_at',
          OLD."created_at",
          'updated_at',
          OLD."updated_at"
        )
      END
    );
    INSERT INTO _tombstones (table_name, row_id, version)
    SELECT 'items', OLD."id", OLD."updated_at"
    WHERE OLD."id" IS NOT NULL
    ON CONFLICT DO UPDATE SET version = max(version, excluded.version);
  END;
