/*
  Warnings:

  - You are about to alter the column `value` on the `items` table; the data in that column could be lost.

*/
-- RedefineTables
PRAGMA defer_foreign_keys=ON;
PRAGMA foreign_keys=OFF;
CREATE TABLE "new_items" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "name" TEXT NOT NULL DEFAULT 'none',
    "value" TEXT,
    "updated_at" BIGINT
);
INSERT INTO "new_items" ("id", "name", "updated_at", "value") SELECT "id", coalesce("name", 'none') AS "name", "updated_at", "value" FROM "items";
DROP TABLE "items";
ALTER TABLE "new_items" RENAME TO "items";
PRAGMA foreign_keys=ON;
PRAGMA defer_foreign_keys=OFF;
