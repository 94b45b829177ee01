alter table `items` rename `name` to `title`;
