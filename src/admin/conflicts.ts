/** The routes of the conflict journal. */
import { RowcastError } from '../errors.ts';
import type { Administered } from './administered.ts';
import { BadRequest, type Body, numberIn } from './body.ts';

interface Asked {
  path: string[];
  query: URLSearchParams;
  body: Body;
}

/** `GET conflicts`, and of one of them. */
export function conflictsAsked(subject: Administered, { path: [number, ...more], query }: Asked): unknown {
  const conflicts = journalOf(subject);
  if (more.length > 0) throw new BadRequest('a conflict is asked for by its number alone');
  if (number !== undefined) return conflicts.get(numberIn(NUMBER, number));
  return conflicts.list({
    table: query.get('table') ?? undefined,
    id: query.get('id') ?? undefined,
    after: numberIn('after', query.get('after') ?? '0'),
    limit: Math.min(1_000, numberIn('limit', query.get('limit') ?? '100')),
  });
}

/** `POST conflicts/N/restore` and `dismiss`. */
export function conflictDone(subject: Administered, { path: [number, verb, ...more], body }: Asked): unknown {
  const conflicts = journalOf(subject);
  const id = numberIn(NUMBER, number);
  if (more.length > 0 || (verb !== 'restore' && verb !== 'dismiss')) {
    throw new BadRequest('a conflict can be: restore, dismiss');
  }
  const { columns, ...rest } = body;
  const unknown = Object.keys(verb === 'restore' ? rest : body)[0];
  if (unknown !== undefined) {
    throw new BadRequest(
      `"${unknown}" is not known; ${verb === 'restore' ? 'there is columns' : 'there is nothing to say'}`,
    );
  }
  if (verb === 'restore') return conflicts.restore(id, columns === undefined ? {} : { columns: columns as string[] });
  conflicts.dismiss(id);
  return undefined;
}

const NUMBER = 'the number of a conflict';

function journalOf({ conflicts }: Administered): NonNullable<Administered['conflicts']> {
  if (conflicts) return conflicts;
  throw new RowcastError('NO_SUCH_CONFLICT', 'a hub keeps no conflict journal', {
    hint: 'conflicts are noted where rows are written: ask the nodes',
  });
}
