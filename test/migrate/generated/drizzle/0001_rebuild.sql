PRAGMA foreign_keys=OFF;--> statement-breakpoint
CREATE TABLE `__new_items` (
	`id` text PRIMARY KEY NOT NULL,
	`name` text DEFAULT 'none' NOT NULL,
	`value` text,
	`updated_at` integer
);
--> statement-breakpoint
INSERT INTO `__new_items`("id", "name", "value", "updated_at") SELECT "id", "name", "value", "updated_at" FROM `items`;--> statement-breakpoint
DROP TABLE `items`;--> statement-breakpoint
ALTER TABLE `__new_items` RENAME TO `items`;--> statement-breakpoint
PRAGMA foreign_keys=ON;