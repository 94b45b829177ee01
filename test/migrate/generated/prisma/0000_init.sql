-- CreateTable
CREATE TABLE "items" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "name" TEXT,
    "value" INTEGER,
    "updated_at" BIGINT
);

-- CreateTable
CREATE TABLE "notes" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "item" TEXT,
    "updated_at" BIGINT,
    CONSTRAINT "notes_item_fkey" FOREIGN KEY ("item") REFERENCES "items" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);
