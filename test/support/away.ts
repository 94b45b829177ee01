/** A sender with a peer that is away. */
import type { Config, RowcastEvents } from '../../src/index.ts';
import type { TestDatabase } from './lane.ts';
import { database } from './nodes.ts';
import { type Receivers, receivers, type Sender, sender, write } from './receivers.ts';

export const A = 'http://a.test';
export const B = 'http://b.test';
export const MINUTE = 60_000;

export function writeMany(db: TestDatabase, from: number, to: number): void {
  db.exec(
    `WITH RECURSIVE n (i) AS (SELECT ${from} UNION ALL SELECT i + 1 FROM n WHERE i < ${to}) ` +
      "INSERT INTO items SELECT printf('row-%07d', i), 'n', i, 10, 1000 FROM n",
  );
}

export interface Case extends Sender {
  network: Receivers;
  db: TestDatabase;
  told: RowcastEvents['peer-stale'][];
  /** Ships what there is, and lets the bound be looked at. */
  minute(): Promise<void>;
}

/** `b` is away, and everybody has the row `first`. */
export async function away(
  maxBacklog: Config['maxBacklog'],
  extra: Partial<Config> = {},
  peers: string[] = [A, B],
): Promise<Case> {
  const network = await receivers(...peers);
  const db = await database();
  const made = sender(db, network, peers, { ...(maxBacklog && { maxBacklog }), ...extra });
  const told: Case['told'] = [];
  made.manager.on('peer-stale', (event) => told.push(event));
  write(db, 'first');
  await made.manager.flush();
  network.away.add(B);
  const minute = async (): Promise<void> => {
    await made.manager.flush();
    // Not tick by tick: the loop to the peer that is away would try again and again meanwhile.
    await made.clock.jump(MINUTE + 1_000);
    await made.clock.advance(200);
  };
  return { ...made, network, db, told, minute };
}
