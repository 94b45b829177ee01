/** A row of whatever table under one name: both may have any characters in them, so the length says where the table's ends. */
export function keyOfRow(table: string, id: string): string {
  return `${table.length}\n${table}\n${id}`;
}
