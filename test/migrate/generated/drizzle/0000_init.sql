CREATE TABLE `items` (
	`id` text PRIMARY KEY NOT NULL,
	`name` text,
	`value` integer,
	`updated_at` integer
);
--> statement-breakpoint
CREATE TABLE `notes` (
	`id` text PRIMARY KEY NOT NULL,
	`item` text,
	`updated_at` integer,
	FOREIGN KEY (`item`) REFERENCES `items`(`id`) ON UPDATE no action ON DELETE cascade
);
