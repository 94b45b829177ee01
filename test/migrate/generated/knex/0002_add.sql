create table `tags` (`id` varchar(255), `label` varchar(255), `updated_at` bigint, primary key (`id`));
create unique index `tags_label_unique` on `tags` (`label`);
alter table `items` add column `slug` varchar(255) default 'x';
