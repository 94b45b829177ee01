create table `items` (`id` varchar(255), `name` varchar(255), `value` integer, `updated_at` bigint, primary key (`id`));
create table `notes` (`id` varchar(255), `item` varchar(255), `updated_at` bigint, foreign key(`item`) references `items`(`id`) on delete CASCADE, primary key (`id`));
