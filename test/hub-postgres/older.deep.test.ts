/**
 * Nodes that know nothing of a group, nor of anything else that was added to the protocol: a peer written from the text of
 * the specification, and a node whose introductions, forms and origins are taken away on their way, in both directions, as
 * they were never there. To each the group is one peer at one address.
 */
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { describe, expect, test } from 'vitest';
import { createListener } from '../../src/http/index.ts';
import { type GroupHub, groupHub } from '../support/groups.ts';
import { count, door, insert } from '../support/hubs.ts';
import { exactRows, node, until } from '../support/nodes.ts';
import { plainPeer } from '../support/plain-peer.ts';
import { hasPostgres, newDatabase, postgresServer, query } from '../support/postgres.ts';

/** What the first form of the protocol had. */
const HEADERS = new Set(['content-type', 'content-length', 'transfer-encoding', 'host', 'connection', 'x-node-id']);

describe.skipIf(!hasPostgres)('older nodes and a group', () => {
  const server = postgresServer();

  test('are served as by one hub, in the plain form', async () => {
    const url = await newDatabase(server());
    const seen: string[] = [];
    const plain = await plainPeer(seen);
    const [olderDoor, newDoor, group] = await Promise.all([door(), door(), door()]);
    const hubs = [
      await groupHub(url, { edges: [plain.url, olderDoor.url, newDoor.url] }),
      await groupHub(url),
    ] as const;
    // One address for all processes, of which the present one answers.
    let turn = 0;
    const listeners = new Map(hubs.map((one) => [one, createListener(one.hub)]));
    group.open((request, response) => {
      const all = [...listeners.values()];
      (all[turn++ % all.length] as RequestListener)(request, response);
    });
    const older = await node({ id: 'older', peers: [await stripped(group.url)], batchMs: 5 });
    olderDoor.open(withoutNewHeaders(createListener(older.manager)));
    const newer = await node({ id: 'newer', peers: [group.url], batchMs: 5 });
    newDoor.open(createListener(newer.manager));

    let rows = 0;
    const write = async (name: string): Promise<void> => {
      for (let i = 0; i < 10; i++) for (const one of [older, newer]) insert(one, `${name}-${one === older}-${i}`);
      plain.db.exec(`INSERT INTO items VALUES ('${name}-plain', 'p', 1, 1, 4000000000001)`);
      await plain.ship(group.url);
      rows += 21;
      await until(`all have ${name}`, () => [older, newer, plain as never].every((one) => count(one) === rows));
    };
    await write('first');
    // An edit of what another one wrote, and a deletion.
    newer.db.exec("UPDATE items SET name = 'edited', updated_at = 4000000000005 WHERE id = 'first-plain'");
    older.db.exec("DELETE FROM items WHERE id = 'first-false-0'");
    rows -= 1;
    const name = (db: typeof plain.db): unknown =>
      (db.prepare("SELECT name FROM items WHERE id = 'first-plain'").get() as { name: unknown }).name;
    await until('all have the edit and the deletion', () =>
      [older, newer, plain].every(({ db }) => name(db) === 'edited' && count({ db } as never) === rows),
    );
    await (hubs[0] as GroupHub).hub.stop();
    listeners.delete(hubs[0]);
    await write('then');

    expect(exactRows(plain.db, 'items')).toEqual(exactRows(newer.db, 'items'));
    expect(exactRows(older.db, 'items')).toEqual(exactRows(newer.db, 'items'));
    for (const body of seen) {
      const batch = JSON.parse(body);
      expect(Object.keys(batch)).toEqual(['batch_id', 'changes']);
      for (const change of batch.changes) {
        const { base, origin, ...known } = change;
        expect(Object.keys(known)).toEqual(['op', 'table', 'row', 'old_id']);
      }
    }
    expect(await hubs[1].hub.deadLetters.list()).toEqual([]);
    // Of the older ones no database is known, and of the newer one it is.
    const known = await query(url, 'SELECT id FROM rowcast.nodes WHERE self IS NOT TRUE');
    expect(known).toEqual([{ id: 'newer' }]);
  });
});

/** An address at which requests lose their newer headers before they come to that one, and answers as well. */
async function stripped(url: string): Promise<string> {
  const at = await door();
  at.open(async (request: IncomingMessage, response: ServerResponse) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { method = 'GET' } = request;
    const sent = await fetch(`${url}${request.url}`, {
      method,
      headers: { 'content-type': 'application/json', 'x-node-id': String(request.headers['x-node-id']) },
      ...(method === 'POST' && { body: Buffer.concat(chunks) }),
    }).catch(() => undefined);
    if (!sent) return void response.destroy();
    response.writeHead(sent.status, { 'content-type': sent.headers.get('content-type') ?? 'application/json' });
    response.end(await sent.text());
  });
  return at.url;
}

/** The same, of a listener. */
function withoutNewHeaders(listener: RequestListener): RequestListener {
  return (request, response) => {
    for (const key of Object.keys(request.headers)) if (!HEADERS.has(key)) delete request.headers[key];
    const writeHead = response.writeHead.bind(response) as (status: number, headers?: object) => ServerResponse;
    response.writeHead = ((status: number, headers: Record<string, string> = {}) => {
      const kept = Object.entries(headers).filter(([key]) => HEADERS.has(key.toLowerCase()));
      return writeHead(status, Object.fromEntries(kept));
    }) as typeof response.writeHead;
    listener(request, response);
  };
}
