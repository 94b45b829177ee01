/** What a sender hears of changes that a peer keeps until their time. */
import { expect, test } from 'vitest';
import { attach } from '../../src/index.ts';
import { judge } from '../../src/send/verdict.ts';
import { receivedBy, recordingFetch } from '../support/bad-servers.ts';
import { cleanUp, database, ITEMS, node } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const DAY = 86_400_000;
const FAR = 1_700_000_000_000 + 100 * DAY;

test('its operator is warned, once an hour, and nothing is sent again', async () => {
  const clock = new VirtualClock((ms) => ms <= 800);
  const peer = await node({ id: 'b', clock: new VirtualClock(), maxAheadMs: DAY });
  const { fetch, sent } = recordingFetch((_, raw) => receivedBy(peer.manager, raw));
  const db = await database(ITEMS);
  const manager = attach(db, { id: 'a', peers: ['http://b'], clock, fetch }, ['items']);
  cleanUp(() => manager.stop());
  const warnings: { code: string; message: string }[] = [];
  manager.on('warning', (warning) => warnings.push(warning));
  for (let i = 0; i < 3; i++) {
    db.exec(`INSERT INTO items VALUES ('x${i}', 'n', 1, 1, ${FAR})`);
    expect(await manager.flush()).toEqual({ delivered: ['http://b'], unreachable: [] });
  }
  expect(warnings.filter(({ code }) => code === 'future-stamp')).toEqual([
    { code: 'future-stamp', message: expect.stringMatching(/^http:\/\/b keeps 1 changes until .*clocks/) },
  ]);
  const count = sent.length;
  await clock.advance(60_000);
  expect(sent.length - count).toBe(0);
  await clock.jump(3_600_000);
  db.exec(`INSERT INTO items VALUES ('y', 'n', 1, 1, ${FAR})`);
  await manager.flush();
  expect(warnings.filter(({ code }) => code === 'future-stamp')).toHaveLength(2);
});

test.each<[string, unknown, number | undefined]>([
  ['nothing', undefined, undefined],
  ['no list', 'future-stamp', undefined],
  ['other codes', [{ index: 0, code: 'constraint', message: 'm' }], undefined],
  ['nonsense', [null, 7, 'x', { code: 'future-stamp' }], 1],
  ['two of them', [{ code: 'future-stamp', message: 'a' }, { code: 'bad-id' }, { code: 'future-stamp' }], 2],
])('an acknowledgement may list %s', (_, rejected, expected) => {
  const verdict = judge({ status: 200, body: JSON.stringify({ ack: 1, applied: 0, rejected }) }, 1);
  expect(verdict).toMatchObject({ kind: 'acked' });
  expect((verdict as { early?: { changes: number } }).early?.changes).toBe(expected);
});
