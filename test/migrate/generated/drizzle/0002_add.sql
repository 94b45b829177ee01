CREATE TABLE `tags` (
	`id` text PRIMARY KEY NOT NULL,
	`label` text,
	`updated_at` integer
);
--> statement-breakpoint
CREATE UNIQUE INDEX `tags_label_unique` ON `tags` (`label`);--> statement-breakpoint
ALTER TABLE `items` ADD `slug` text DEFAULT 'x';