-- AlterTable
ALTER TABLE "items" ADD COLUMN "slug" TEXT DEFAULT 'x';

-- CreateTable
CREATE TABLE "tags" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "label" TEXT,
    "updated_at" BIGINT
);

-- CreateIndex
CREATE UNIQUE INDEX "tags_label_key" ON "tags"("label");
