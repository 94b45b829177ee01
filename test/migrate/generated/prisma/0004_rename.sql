ALTER TABLE "items" RENAME COLUMN "name" TO "title";
