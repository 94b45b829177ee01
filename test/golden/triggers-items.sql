CREATE TRIGGER "_rowcast_items_insert_floor" BEFORE INSERT
ON "items"
FOR EACH ROW
WHEN EXISTS (
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
  END;

CREATE TRIGGER "_rowcast_items_insert_stamp" AFTER INSERT
ON "items"
FOR EACH ROW
WHEN (
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
          coalesce(
            (SELECT version FROM _stamps WHERE table_name = 'items' AND row_id = t."id"), -8640000000000000
          ),
          coalesce(
            (SELECT version FROM _tombstones WHERE table_name = 'items' AND row_id = t."id"),
            -8640000000000000
          )
        ) + 1
      )
    )
    FROM "items" AS t
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
            coalesce(
              (SELECT version FROM _stamps WHERE table_name = 'items' AND row_id = t."id"), -8640000000000000
            ),
            coalesce(
              (SELECT version FROM _tombstones WHERE table_name = 'items' AND row_id = t."id"),
              -8640000000000000
            )
          )
      )
    ON CONFLICT DO UPDATE SET version = max(version, excluded.version),
    refused = NULL;
    INSERT INTO _changes (op, table_name, row_id, row_data)
    SELECT 'INSERT', 'items', t."id", json_object(
      'id',
      CASE
        WHEN t."id" COLLATE BINARY >= '%'
          AND t."id" < x'' THEN t."id" || ''
        WHEN t."id" >= x'' THEN '$blob:' || hex(t."id")
        WHEN (t."id" COLLATE BINARY >= '$' AND t."id" COLLATE BINARY < '%') THEN CASE
          WHEN t."id" GLOB '$blob:*'
            OR t."id" GLOB '$text:*'
            OR t."id" GLOB '$int:*'
            OR t."id" GLOB '$real:*'
            OR t."id" GLOB '$bytes:*' THEN '$text:' || t."id"
          ELSE t."id" || ''
        END
        ELSE t."id" || ''
      END,
      'name',
      CASE
        WHEN t."name" COLLATE BINARY >= '%'
          AND t."name" < x'' THEN t."name" || ''
        WHEN t."name" >= x'' THEN '$blob:' || hex(t."name")
        WHEN (t."name" COLLATE BINARY >= '$' AND t."name" COLLATE BINARY < '%') THEN CASE
          WHEN t."name" GLOB '$blob:*'
            OR t."name" GLOB '$text:*'
            OR t."name" GLOB '$int:*'
            OR t."name" GLOB '$real:*'
            OR t."name" GLOB '$bytes:*' THEN '$text:' || t."name"
          ELSE t."name" || ''
        END
        ELSE t."name" || ''
      END,
      'value',
      CASE
        WHEN t."value" BETWEEN -9007199254740991 AND 9007199254740991
          AND typeof(t."value") = 'integer' THEN t."value"
        ELSE CASE
          typeof(t."value")
          WHEN 'integer' THEN CAST(t."value" AS TEXT)
          WHEN 'real' THEN CASE
            WHEN t."value" > 1.7976931348623157e308 THEN '9e999'
            WHEN t."value" < -1.7976931348623157e308 THEN '-9e999'
            ELSE CASE
              WHEN CAST(CAST(t."value" AS TEXT) AS REAL) = t."value" THEN t."value"
              ELSE json(printf('%!.17g', t."value"))
            END
          END
          WHEN 'blob' THEN '$blob:' || hex(t."value")
          WHEN 'text' THEN CASE
            WHEN (t."value" COLLATE BINARY >= '$' AND t."value" COLLATE BINARY < '%') THEN CASE
              WHEN t."value" GLOB '$blob:*'
                OR t."value" GLOB '$text:*'
                OR t."value" GLOB '$int:*'
                OR t."value" GLOB '$real:*'
                OR t."value" GLOB '$bytes:*' THEN '$text:' || t."value"
              ELSE t."value" || ''
            END
            ELSE t."value" || ''
          END
        END
      END,
      'created_at',
      CASE
        WHEN t."created_at" BETWEEN -9007199254740991 AND 9007199254740991
          AND typeof(t."created_at") = 'integer' THEN t."created_at"
        ELSE CASE
          typeof(t."created_at")
          WHEN 'integer' THEN CAST(t."created_at" AS TEXT)
          WHEN 'real' THEN CASE
            WHEN t."created_at" > 1.7976931348623157e308 THEN '9e999'
            WHEN t."created_at" < -1.7976931348623157e308 THEN '-9e999'
            ELSE CASE
              WHEN CAST(CAST(t."created_at" AS TEXT) AS REAL) = t."created_at" THEN t."created_at"
              ELSE json(printf('%!.17g', t."created_at"))
            END
          END
          WHEN 'blob' THEN '$blob:' || hex(t."created_at")
          WHEN 'text' THEN CASE
            WHEN (t."created_at" COLLATE BINARY >= '$' AND t."created_at" COLLATE BINARY < '%') THEN CASE
              WHEN t."created_at" GLOB '$blob:*'
                OR t."created_at" GLOB '$text:*'
                OR t."created_at" GLOB '$int:*'
                OR t."created_at" GLOB '$real:*'
                OR t."created_at" GLOB '$bytes:*' THEN '$text:' || t."created_at"
              ELSE t."created_at" || ''
            END
            ELSE t."created_at" || ''
          END
        END
      END,
      'updated_at',
      coalesce(
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
      json_object(
        'id',
        CASE
          WHEN OLD."id" COLLATE BINARY >= '%'
            AND OLD."id" < x'' THEN OLD."id" || ''
          WHEN OLD."id" >= x'' THEN '$blob:' || hex(OLD."id")
          WHEN (OLD."id" COLLATE BINARY >= '$' AND OLD."id" COLLATE BINARY < '%') THEN CASE
            WHEN OLD."id" GLOB '$blob:*'
              OR OLD."id" GLOB '$text:*'
              OR OLD."id" GLOB '$int:*'
              OR OLD."id" GLOB '$real:*'
              OR OLD."id" GLOB '$bytes:*' THEN '$text:' || OLD."id"
            ELSE OLD."id" || ''
          END
          ELSE OLD."id" || ''
        END,
        'name',
        CASE
          WHEN OLD."name" COLLATE BINARY >= '%'
            AND OLD."name" < x'' THEN OLD."name" || ''
          WHEN OLD."name" >= x'' THEN '$blob:' || hex(OLD."name")
          WHEN (OLD."name" COLLATE BINARY >= '$' AND OLD."name" COLLATE BINARY < '%') THEN CASE
            WHEN OLD."name" GLOB '$blob:*'
              OR OLD."name" GLOB '$text:*'
              OR OLD."name" GLOB '$int:*'
              OR OLD."name" GLOB '$real:*'
              OR OLD."name" GLOB '$bytes:*' THEN '$text:' || OLD."name"
            ELSE OLD."name" || ''
          END
          ELSE OLD."name" || ''
        END,
        'value',
        CASE
          WHEN OLD."value" BETWEEN -9007199254740991 AND 9007199254740991
            AND typeof(OLD."value") = 'integer' THEN OLD."value"
          ELSE CASE
            typeof(OLD."value")
            WHEN 'integer' THEN CAST(OLD."value" AS TEXT)
            WHEN 'real' THEN CASE
              WHEN OLD."value" > 1.7976931348623157e308 THEN '9e999'
              WHEN OLD."value" < -1.7976931348623157e308 THEN '-9e999'
              ELSE CASE
                WHEN CAST(CAST(OLD."value" AS TEXT) AS REAL) = OLD."value" THEN OLD."value"
                ELSE json(printf('%!.17g', OLD."value"))
              END
            END
            WHEN 'blob' THEN '$blob:' || hex(OLD."value")
            WHEN 'text' THEN CASE
              WHEN (OLD."value" COLLATE BINARY >= '$' AND OLD."value" COLLATE BINARY < '%') THEN CASE
                WHEN OLD."value" GLOB '$blob:*'
                  OR OLD."value" GLOB '$text:*'
                  OR OLD."value" GLOB '$int:*'
                  OR OLD."value" GLOB '$real:*'
                  OR OLD."value" GLOB '$bytes:*' THEN '$text:' || OLD."value"
                ELSE OLD."value" || ''
              END
              ELSE OLD."value" || ''
            END
          END
        END,
        'created_at',
        CASE
          WHEN OLD."created_at" BETWEEN -9007199254740991 AND 9007199254740991
            AND typeof(OLD."created_at") = 'integer' THEN OLD."created_at"
          ELSE CASE
            typeof(OLD."created_at")
            WHEN 'integer' THEN CAST(OLD."created_at" AS TEXT)
            WHEN 'real' THEN CASE
              WHEN OLD."created_at" > 1.7976931348623157e308 THEN '9e999'
              WHEN OLD."created_at" < -1.7976931348623157e308 THEN '-9e999'
              ELSE CASE
                WHEN CAST(CAST(OLD."created_at" AS TEXT) AS REAL) = OLD."created_at" THEN OLD."created_at"
                ELSE json(printf('%!.17g', OLD."created_at"))
              END
            END
            WHEN 'blob' THEN '$blob:' || hex(OLD."created_at")
            WHEN 'text' THEN CASE
              WHEN (OLD."created_at" COLLATE BINARY >= '$' AND OLD."created_at" COLLATE BINARY < '%') THEN CASE
                WHEN OLD."created_at" GLOB '$blob:*'
                  OR OLD."created_at" GLOB '$text:*'
                  OR OLD."created_at" GLOB '$int:*'
                  OR OLD."created_at" GLOB '$real:*'
                  OR OLD."created_at" GLOB '$bytes:*' THEN '$text:' || OLD."created_at"
                ELSE OLD."created_at" || ''
              END
              ELSE OLD."created_at" || ''
            END
          END
        END,
        'updated_at',
        coalesce(
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
    SELECT 'UPDATE', 'items', t."id", json_object(
      'id',
      CASE
        WHEN t."id" COLLATE BINARY >= '%'
          AND t."id" < x'' THEN t."id" || ''
        WHEN t."id" >= x'' THEN '$blob:' || hex(t."id")
        WHEN (t."id" COLLATE BINARY >= '$' AND t."id" COLLATE BINARY < '%') THEN CASE
          WHEN t."id" GLOB '$blob:*'
            OR t."id" GLOB '$text:*'
            OR t."id" GLOB '$int:*'
            OR t."id" GLOB '$real:*'
            OR t."id" GLOB '$bytes:*' THEN '$text:' || t."id"
          ELSE t."id" || ''
        END
        ELSE t."id" || ''
      END,
      'name',
      CASE
        WHEN t."name" COLLATE BINARY >= '%'
          AND t."name" < x'' THEN t."name" || ''
        WHEN t."name" >= x'' THEN '$blob:' || hex(t."name")
        WHEN (t."name" COLLATE BINARY >= '$' AND t."name" COLLATE BINARY < '%') THEN CASE
          WHEN t."name" GLOB '$blob:*'
            OR t."name" GLOB '$text:*'
            OR t."name" GLOB '$int:*'
            OR t."name" GLOB '$real:*'
            OR t."name" GLOB '$bytes:*' THEN '$text:' || t."name"
          ELSE t."name" || ''
        END
        ELSE t."name" || ''
      END,
      'value',
      CASE
        WHEN t."value" BETWEEN -9007199254740991 AND 9007199254740991
          AND typeof(t."value") = 'integer' THEN t."value"
        ELSE CASE
          typeof(t."value")
          WHEN 'integer' THEN CAST(t."value" AS TEXT)
          WHEN 'real' THEN CASE
            WHEN t."value" > 1.7976931348623157e308 THEN '9e999'
            WHEN t."value" < -1.7976931348623157e308 THEN '-9e999'
            ELSE CASE
              WHEN CAST(CAST(t."value" AS TEXT) AS REAL) = t."value" THEN t."value"
              ELSE json(printf('%!.17g', t."value"))
            END
          END
          WHEN 'blob' THEN '$blob:' || hex(t."value")
          WHEN 'text' THEN CASE
            WHEN (t."value" COLLATE BINARY >= '$' AND t."value" COLLATE BINARY < '%') THEN CASE
              WHEN t."value" GLOB '$blob:*'
                OR t."value" GLOB '$text:*'
                OR t."value" GLOB '$int:*'
                OR t."value" GLOB '$real:*'
                OR t."value" GLOB '$bytes:*' THEN '$text:' || t."value"
              ELSE t."value" || ''
            END
            ELSE t."value" || ''
          END
        END
      END,
      'created_at',
      CASE
        WHEN t."created_at" BETWEEN -9007199254740991 AND 9007199254740991
          AND typeof(t."created_at") = 'integer' THEN t."created_at"
        ELSE CASE
          typeof(t."created_at")
          WHEN 'integer' THEN CAST(t."created_at" AS TEXT)
          WHEN 'real' THEN CASE
            WHEN t."created_at" > 1.7976931348623157e308 THEN '9e999'
            WHEN t."created_at" < -1.7976931348623157e308 THEN '-9e999'
            ELSE CASE
              WHEN CAST(CAST(t."created_at" AS TEXT) AS REAL) = t."created_at" THEN t."created_at"
              ELSE json(printf('%!.17g', t."created_at"))
            END
          END
          WHEN 'blob' THEN '$blob:' || hex(t."created_at")
          WHEN 'text' THEN CASE
            WHEN (t."created_at" COLLATE BINARY >= '$' AND t."created_at" COLLATE BINARY < '%') THEN CASE
              WHEN t."created_at" GLOB '$blob:*'
                OR t."created_at" GLOB '$text:*'
                OR t."created_at" GLOB '$int:*'
                OR t."created_at" GLOB '$real:*'
                OR t."created_at" GLOB '$bytes:*' THEN '$text:' || t."created_at"
              ELSE t."created_at" || ''
            END
            ELSE t."created_at" || ''
          END
        END
      END,
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
              coalesce(
                (SELECT version FROM _stamps WHERE table_name = 'items' AND row_id = t."id"),
                -8640000000000000
              ),
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
    ), iif(
      t."id" IS OLD."id",
      nullif(
        max(
          coalesce(
            (SELECT version FROM _stamps WHERE table_name = 'items' AND row_id = t."id"), -8640000000000000
          ),
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
                coalesce(
                  (SELECT version FROM _stamps WHERE table_name = 'items' AND row_id = t."id"),
                  -8640000000000000
                ),
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
          coalesce(
            (SELECT version FROM _stamps WHERE table_name = 'items' AND row_id = t."id"), -8640000000000000
          ),
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
            coalesce(
              (SELECT version FROM _stamps WHERE table_name = 'items' AND row_id = t."id"), -8640000000000000
            ),
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
      json_object(
        'id',
        CASE
          WHEN NEW."id" COLLATE BINARY >= '%'
            AND NEW."id" < x'' THEN NEW."id" || ''
          WHEN NEW."id" >= x'' THEN '$blob:' || hex(NEW."id")
          WHEN (NEW."id" COLLATE BINARY >= '$' AND NEW."id" COLLATE BINARY < '%') THEN CASE
            WHEN NEW."id" GLOB '$blob:*'
              OR NEW."id" GLOB '$text:*'
              OR NEW."id" GLOB '$int:*'
              OR NEW."id" GLOB '$real:*'
              OR NEW."id" GLOB '$bytes:*' THEN '$text:' || NEW."id"
            ELSE NEW."id" || ''
          END
          ELSE NEW."id" || ''
        END,
        'name',
        CASE
          WHEN NEW."name" COLLATE BINARY >= '%'
            AND NEW."name" < x'' THEN NEW."name" || ''
          WHEN NEW."name" >= x'' THEN '$blob:' || hex(NEW."name")
          WHEN (NEW."name" COLLATE BINARY >= '$' AND NEW."name" COLLATE BINARY < '%') THEN CASE
            WHEN NEW."name" GLOB '$blob:*'
              OR NEW."name" GLOB '$text:*'
              OR NEW."name" GLOB '$int:*'
              OR NEW."name" GLOB '$real:*'
              OR NEW."name" GLOB '$bytes:*' THEN '$text:' || NEW."name"
            ELSE NEW."name" || ''
          END
          ELSE NEW."name" || ''
        END,
        'value',
        CASE
          WHEN NEW."value" BETWEEN -9007199254740991 AND 9007199254740991
            AND typeof(NEW."value") = 'integer' THEN NEW."value"
          ELSE CASE
            typeof(NEW."value")
            WHEN 'integer' THEN CAST(NEW."value" AS TEXT)
            WHEN 'real' THEN CASE
              WHEN NEW."value" > 1.7976931348623157e308 THEN '9e999'
              WHEN NEW."value" < -1.7976931348623157e308 THEN '-9e999'
              ELSE CASE
                WHEN CAST(CAST(NEW."value" AS TEXT) AS REAL) = NEW."value" THEN NEW."value"
                ELSE json(printf('%!.17g', NEW."value"))
              END
            END
            WHEN 'blob' THEN '$blob:' || hex(NEW."value")
            WHEN 'text' THEN CASE
              WHEN (NEW."value" COLLATE BINARY >= '$' AND NEW."value" COLLATE BINARY < '%') THEN CASE
                WHEN NEW."value" GLOB '$blob:*'
                  OR NEW."value" GLOB '$text:*'
                  OR NEW."value" GLOB '$int:*'
                  OR NEW."value" GLOB '$real:*'
                  OR NEW."value" GLOB '$bytes:*' THEN '$text:' || NEW."value"
                ELSE NEW."value" || ''
              END
              ELSE NEW."value" || ''
            END
          END
        END,
        'created_at',
        CASE
          WHEN NEW."created_at" BETWEEN -9007199254740991 AND 9007199254740991
            AND typeof(NEW."created_at") = 'integer' THEN NEW."created_at"
          ELSE CASE
            typeof(NEW."created_at")
            WHEN 'integer' THEN CAST(NEW."created_at" AS TEXT)
            WHEN 'real' THEN CASE
              WHEN NEW."created_at" > 1.7976931348623157e308 THEN '9e999'
              WHEN NEW."created_at" < -1.7976931348623157e308 THEN '-9e999'
              ELSE CASE
                WHEN CAST(CAST(NEW."created_at" AS TEXT) AS REAL) = NEW."created_at" THEN NEW."created_at"
                ELSE json(printf('%!.17g', NEW."created_at"))
              END
            END
            WHEN 'blob' THEN '$blob:' || hex(NEW."created_at")
            WHEN 'text' THEN CASE
              WHEN (NEW."created_at" COLLATE BINARY >= '$' AND NEW."created_at" COLLATE BINARY < '%') THEN CASE
                WHEN NEW."created_at" GLOB '$blob:*'
                  OR NEW."created_at" GLOB '$text:*'
                  OR NEW."created_at" GLOB '$int:*'
                  OR NEW."created_at" GLOB '$real:*'
                  OR NEW."created_at" GLOB '$bytes:*' THEN '$text:' || NEW."created_at"
                ELSE NEW."created_at" || ''
              END
              ELSE NEW."created_at" || ''
            END
          END
        END,
        'updated_at',
        CASE
          WHEN NEW."updated_at" BETWEEN -9007199254740991 AND 9007199254740991
            AND typeof(NEW."updated_at") = 'integer' THEN NEW."updated_at"
          ELSE CASE
            typeof(NEW."updated_at")
            WHEN 'integer' THEN CAST(NEW."updated_at" AS TEXT)
            WHEN 'real' THEN CASE
              WHEN NEW."updated_at" > 1.7976931348623157e308 THEN '9e999'
              WHEN NEW."updated_at" < -1.7976931348623157e308 THEN '-9e999'
              ELSE CASE
                WHEN CAST(CAST(NEW."updated_at" AS TEXT) AS REAL) = NEW."updated_at" THEN NEW."updated_at"
                ELSE json(printf('%!.17g', NEW."updated_at"))
              END
            END
            WHEN 'blob' THEN '$blob:' || hex(NEW."updated_at")
            WHEN 'text' THEN CASE
              WHEN (NEW."updated_at" COLLATE BINARY >= '$' AND NEW."updated_at" COLLATE BINARY < '%') THEN CASE
                WHEN NEW."updated_at" GLOB '$blob:*'
                  OR NEW."updated_at" GLOB '$text:*'
                  OR NEW."updated_at" GLOB '$int:*'
                  OR NEW."updated_at" GLOB '$real:*'
                  OR NEW."updated_at" GLOB '$bytes:*' THEN '$text:' || NEW."updated_at"
                ELSE NEW."updated_at" || ''
              END
              ELSE NEW."updated_at" || ''
            END
          END
        END
      )
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
      json_object(
        'id',
        CASE
          WHEN NEW."id" COLLATE BINARY >= '%'
            AND NEW."id" < x'' THEN NEW."id" || ''
          WHEN NEW."id" >= x'' THEN '$blob:' || hex(NEW."id")
          WHEN (NEW."id" COLLATE BINARY >= '$' AND NEW."id" COLLATE BINARY < '%') THEN CASE
            WHEN NEW."id" GLOB '$blob:*'
              OR NEW."id" GLOB '$text:*'
              OR NEW."id" GLOB '$int:*'
              OR NEW."id" GLOB '$real:*'
              OR NEW."id" GLOB '$bytes:*' THEN '$text:' || NEW."id"
            ELSE NEW."id" || ''
          END
          ELSE NEW."id" || ''
        END,
        'name',
        CASE
          WHEN NEW."name" COLLATE BINARY >= '%'
            AND NEW."name" < x'' THEN NEW."name" || ''
          WHEN NEW."name" >= x'' THEN '$blob:' || hex(NEW."name")
          WHEN (NEW."name" COLLATE BINARY >= '$' AND NEW."name" COLLATE BINARY < '%') THEN CASE
            WHEN NEW."name" GLOB '$blob:*'
              OR NEW."name" GLOB '$text:*'
              OR NEW."name" GLOB '$int:*'
              OR NEW."name" GLOB '$real:*'
              OR NEW."name" GLOB '$bytes:*' THEN '$text:' || NEW."name"
            ELSE NEW."name" || ''
          END
          ELSE NEW."name" || ''
        END,
        'value',
        CASE
          WHEN NEW."value" BETWEEN -9007199254740991 AND 9007199254740991
            AND typeof(NEW."value") = 'integer' THEN NEW."value"
          ELSE CASE
            typeof(NEW."value")
            WHEN 'integer' THEN CAST(NEW."value" AS TEXT)
            WHEN 'real' THEN CASE
              WHEN NEW."value" > 1.7976931348623157e308 THEN '9e999'
              WHEN NEW."value" < -1.7976931348623157e308 THEN '-9e999'
              ELSE CASE
                WHEN CAST(CAST(NEW."value" AS TEXT) AS REAL) = NEW."value" THEN NEW."value"
                ELSE json(printf('%!.17g', NEW."value"))
              END
            END
            WHEN 'blob' THEN '$blob:' || hex(NEW."value")
            WHEN 'text' THEN CASE
              WHEN (NEW."value" COLLATE BINARY >= '$' AND NEW."value" COLLATE BINARY < '%') THEN CASE
                WHEN NEW."value" GLOB '$blob:*'
                  OR NEW."value" GLOB '$text:*'
                  OR NEW."value" GLOB '$int:*'
                  OR NEW."value" GLOB '$real:*'
                  OR NEW."value" GLOB '$bytes:*' THEN '$text:' || NEW."value"
                ELSE NEW."value" || ''
              END
              ELSE NEW."value" || ''
            END
          END
        END,
        'created_at',
        CASE
          WHEN NEW."created_at" BETWEEN -9007199254740991 AND 9007199254740991
            AND typeof(NEW."created_at") = 'integer' THEN NEW."created_at"
          ELSE CASE
            typeof(NEW."created_at")
            WHEN 'integer' THEN CAST(NEW."created_at" AS TEXT)
            WHEN 'real' THEN CASE
              WHEN NEW."created_at" > 1.7976931348623157e308 THEN '9e999'
              WHEN NEW."created_at" < -1.7976931348623157e308 THEN '-9e999'
              ELSE CASE
                WHEN CAST(CAST(NEW."created_at" AS TEXT) AS REAL) = NEW."created_at" THEN NEW."created_at"
                ELSE json(printf('%!.17g', NEW."created_at"))
              END
            END
            WHEN 'blob' THEN '$blob:' || hex(NEW."created_at")
            WHEN 'text' THEN CASE
              WHEN (NEW."created_at" COLLATE BINARY >= '$' AND NEW."created_at" COLLATE BINARY < '%') THEN CASE
                WHEN NEW."created_at" GLOB '$blob:*'
                  OR NEW."created_at" GLOB '$text:*'
                  OR NEW."created_at" GLOB '$int:*'
                  OR NEW."created_at" GLOB '$real:*'
                  OR NEW."created_at" GLOB '$bytes:*' THEN '$text:' || NEW."created_at"
                ELSE NEW."created_at" || ''
              END
              ELSE NEW."created_at" || ''
            END
          END
        END,
        'updated_at',
        CASE
          WHEN NEW."updated_at" BETWEEN -9007199254740991 AND 9007199254740991
            AND typeof(NEW."updated_at") = 'integer' THEN NEW."updated_at"
          ELSE CASE
            typeof(NEW."updated_at")
            WHEN 'integer' THEN CAST(NEW."updated_at" AS TEXT)
            WHEN 'real' THEN CASE
              WHEN NEW."updated_at" > 1.7976931348623157e308 THEN '9e999'
              WHEN NEW."updated_at" < -1.7976931348623157e308 THEN '-9e999'
              ELSE CASE
                WHEN CAST(CAST(NEW."updated_at" AS TEXT) AS REAL) = NEW."updated_at" THEN NEW."updated_at"
                ELSE json(printf('%!.17g', NEW."updated_at"))
              END
            END
            WHEN 'blob' THEN '$blob:' || hex(NEW."updated_at")
            WHEN 'text' THEN CASE
              WHEN (NEW."updated_at" COLLATE BINARY >= '$' AND NEW."updated_at" COLLATE BINARY < '%') THEN CASE
                WHEN NEW."updated_at" GLOB '$blob:*'
                  OR NEW."updated_at" GLOB '$text:*'
                  OR NEW."updated_at" GLOB '$int:*'
                  OR NEW."updated_at" GLOB '$real:*'
                  OR NEW."updated_at" GLOB '$bytes:*' THEN '$text:' || NEW."updated_at"
                ELSE NEW."updated_at" || ''
              END
              ELSE NEW."updated_at" || ''
            END
          END
        END
      ),
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
      json_object(
        'id',
        CASE
          WHEN OLD."id" COLLATE BINARY >= '%'
            AND OLD."id" < x'' THEN OLD."id" || ''
          WHEN OLD."id" >= x'' THEN '$blob:' || hex(OLD."id")
          WHEN (OLD."id" COLLATE BINARY >= '$' AND OLD."id" COLLATE BINARY < '%') THEN CASE
            WHEN OLD."id" GLOB '$blob:*'
              OR OLD."id" GLOB '$text:*'
              OR OLD."id" GLOB '$int:*'
              OR OLD."id" GLOB '$real:*'
              OR OLD."id" GLOB '$bytes:*' THEN '$text:' || OLD."id"
            ELSE OLD."id" || ''
          END
          ELSE OLD."id" || ''
        END,
        'name',
        CASE
          WHEN OLD."name" COLLATE BINARY >= '%'
            AND OLD."name" < x'' THEN OLD."name" || ''
          WHEN OLD."name" >= x'' THEN '$blob:' || hex(OLD."name")
          WHEN (OLD."name" COLLATE BINARY >= '$' AND OLD."name" COLLATE BINARY < '%') THEN CASE
            WHEN OLD."name" GLOB '$blob:*'
              OR OLD."name" GLOB '$text:*'
              OR OLD."name" GLOB '$int:*'
              OR OLD."name" GLOB '$real:*'
              OR OLD."name" GLOB '$bytes:*' THEN '$text:' || OLD."name"
            ELSE OLD."name" || ''
          END
          ELSE OLD."name" || ''
        END,
        'value',
        CASE
          WHEN OLD."value" BETWEEN -9007199254740991 AND 9007199254740991
            AND typeof(OLD."value") = 'integer' THEN OLD."value"
          ELSE CASE
            typeof(OLD."value")
            WHEN 'integer' THEN CAST(OLD."value" AS TEXT)
            WHEN 'real' THEN CASE
              WHEN OLD."value" > 1.7976931348623157e308 THEN '9e999'
              WHEN OLD."value" < -1.7976931348623157e308 THEN '-9e999'
              ELSE CASE
                WHEN CAST(CAST(OLD."value" AS TEXT) AS REAL) = OLD."value" THEN OLD."value"
                ELSE json(printf('%!.17g', OLD."value"))
              END
            END
            WHEN 'blob' THEN '$blob:' || hex(OLD."value")
            WHEN 'text' THEN CASE
              WHEN (OLD."value" COLLATE BINARY >= '$' AND OLD."value" COLLATE BINARY < '%') THEN CASE
                WHEN OLD."value" GLOB '$blob:*'
                  OR OLD."value" GLOB '$text:*'
                  OR OLD."value" GLOB '$int:*'
                  OR OLD."value" GLOB '$real:*'
                  OR OLD."value" GLOB '$bytes:*' THEN '$text:' || OLD."value"
                ELSE OLD."value" || ''
              END
              ELSE OLD."value" || ''
            END
          END
        END,
        'created_at',
        CASE
          WHEN OLD."created_at" BETWEEN -9007199254740991 AND 9007199254740991
            AND typeof(OLD."created_at") = 'integer' THEN OLD."created_at"
          ELSE CASE
            typeof(OLD."created_at")
            WHEN 'integer' THEN CAST(OLD."created_at" AS TEXT)
            WHEN 'real' THEN CASE
              WHEN OLD."created_at" > 1.7976931348623157e308 THEN '9e999'
              WHEN OLD."created_at" < -1.7976931348623157e308 THEN '-9e999'
              ELSE CASE
                WHEN CAST(CAST(OLD."created_at" AS TEXT) AS REAL) = OLD."created_at" THEN OLD."created_at"
                ELSE json(printf('%!.17g', OLD."created_at"))
              END
            END
            WHEN 'blob' THEN '$blob:' || hex(OLD."created_at")
            WHEN 'text' THEN CASE
              WHEN (OLD."created_at" COLLATE BINARY >= '$' AND OLD."created_at" COLLATE BINARY < '%') THEN CASE
                WHEN OLD."created_at" GLOB '$blob:*'
                  OR OLD."created_at" GLOB '$text:*'
                  OR OLD."created_at" GLOB '$int:*'
                  OR OLD."created_at" GLOB '$real:*'
                  OR OLD."created_at" GLOB '$bytes:*' THEN '$text:' || OLD."created_at"
                ELSE OLD."created_at" || ''
              END
              ELSE OLD."created_at" || ''
            END
          END
        END,
        'updated_at',
        coalesce(
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
      json_object(
        'id',
        CASE
          WHEN OLD."id" COLLATE BINARY >= '%'
            AND OLD."id" < x'' THEN OLD."id" || ''
          WHEN OLD."id" >= x'' THEN '$blob:' || hex(OLD."id")
          WHEN (OLD."id" COLLATE BINARY >= '$' AND OLD."id" COLLATE BINARY < '%') THEN CASE
            WHEN OLD."id" GLOB '$blob:*'
              OR OLD."id" GLOB '$text:*'
              OR OLD."id" GLOB '$int:*'
              OR OLD."id" GLOB '$real:*'
              OR OLD."id" GLOB '$bytes:*' THEN '$text:' || OLD."id"
            ELSE OLD."id" || ''
          END
          ELSE OLD."id" || ''
        END,
        'name',
        CASE
          WHEN OLD."name" COLLATE BINARY >= '%'
            AND OLD."name" < x'' THEN OLD."name" || ''
          WHEN OLD."name" >= x'' THEN '$blob:' || hex(OLD."name")
          WHEN (OLD."name" COLLATE BINARY >= '$' AND OLD."name" COLLATE BINARY < '%') THEN CASE
            WHEN OLD."name" GLOB '$blob:*'
              OR OLD."name" GLOB '$text:*'
              OR OLD."name" GLOB '$int:*'
              OR OLD."name" GLOB '$real:*'
              OR OLD."name" GLOB '$bytes:*' THEN '$text:' || OLD."name"
            ELSE OLD."name" || ''
          END
          ELSE OLD."name" || ''
        END,
        'value',
        CASE
          WHEN OLD."value" BETWEEN -9007199254740991 AND 9007199254740991
            AND typeof(OLD."value") = 'integer' THEN OLD."value"
          ELSE CASE
            typeof(OLD."value")
            WHEN 'integer' THEN CAST(OLD."value" AS TEXT)
            WHEN 'real' THEN CASE
              WHEN OLD."value" > 1.7976931348623157e308 THEN '9e999'
              WHEN OLD."value" < -1.7976931348623157e308 THEN '-9e999'
              ELSE CASE
                WHEN CAST(CAST(OLD."value" AS TEXT) AS REAL) = OLD."value" THEN OLD."value"
                ELSE json(printf('%!.17g', OLD."value"))
              END
            END
            WHEN 'blob' THEN '$blob:' || hex(OLD."value")
            WHEN 'text' THEN CASE
              WHEN (OLD."value" COLLATE BINARY >= '$' AND OLD."value" COLLATE BINARY < '%') THEN CASE
                WHEN OLD."value" GLOB '$blob:*'
                  OR OLD."value" GLOB '$text:*'
                  OR OLD."value" GLOB '$int:*'
                  OR OLD."value" GLOB '$real:*'
                  OR OLD."value" GLOB '$bytes:*' THEN '$text:' || OLD."value"
                ELSE OLD."value" || ''
              END
              ELSE OLD."value" || ''
            END
          END
        END,
        'created_at',
        CASE
          WHEN OLD."created_at" BETWEEN -9007199254740991 AND 9007199254740991
            AND typeof(OLD."created_at") = 'integer' THEN OLD."created_at"
          ELSE CASE
            typeof(OLD."created_at")
            WHEN 'integer' THEN CAST(OLD."created_at" AS TEXT)
            WHEN 'real' THEN CASE
              WHEN OLD."created_at" > 1.7976931348623157e308 THEN '9e999'
              WHEN OLD."created_at" < -1.7976931348623157e308 THEN '-9e999'
              ELSE CASE
                WHEN CAST(CAST(OLD."created_at" AS TEXT) AS REAL) = OLD."created_at" THEN OLD."created_at"
                ELSE json(printf('%!.17g', OLD."created_at"))
              END
            END
            WHEN 'blob' THEN '$blob:' || hex(OLD."created_at")
            WHEN 'text' THEN CASE
              WHEN (OLD."created_at" COLLATE BINARY >= '$' AND OLD."created_at" COLLATE BINARY < '%') THEN CASE
                WHEN OLD."created_at" GLOB '$blob:*'
                  OR OLD."created_at" GLOB '$text:*'
                  OR OLD."created_at" GLOB '$int:*'
                  OR OLD."created_at" GLOB '$real:*'
                  OR OLD."created_at" GLOB '$bytes:*' THEN '$text:' || OLD."created_at"
                ELSE OLD."created_at" || ''
              END
              ELSE OLD."created_at" || ''
            END
          END
        END,
        'updated_at',
        OLD."updated_at"
      )
    );
    INSERT INTO _tombstones (table_name, row_id, version)
    SELECT 'items', OLD."id", OLD."updated_at"
    WHERE OLD."id" IS NOT NULL
    ON CONFLICT DO UPDATE SET version = max(version, excluded.version);
  END;
