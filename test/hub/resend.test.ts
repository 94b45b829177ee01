/** Tables that were asked for again at a process of a group which is gone before their time has come. */
import { expect, test } from 'vitest';
import { Resends } from '../../src/hub/resend.ts';
import type { HubStore } from '../../src/hub/store.ts';
import { ALL_TABLES } from '../../src/send/asked-tables.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

/** What all processes of a group share. */
function storeOf(asked: Set<string>, touched: string[]): HubStore {
  return {
    tables: async () => ['items'],
    noteAsked: async (tables: string[]) => {
      for (const name of tables) asked.add(name);
    },
    askedFor: async () => [...asked],
    touchTable: async (name: string) => {
      asked.delete(name);
      touched.push(name);
    },
  } as unknown as HubStore;
}

async function pass(clock: VirtualClock, minutes: number): Promise<void> {
  for (let i = 0; i < minutes * 60; i++) await clock.advance(1_000);
}

test('are sent by those that are left, and not by them while the one that was asked is alive', async () => {
  const clock = new VirtualClock();
  const [asked, touched] = [new Set<string>(), [] as string[]];
  const store = storeOf(asked, touched);
  const [first, other] = [new AbortController(), new AbortController()];
  const onError = (error: unknown): never => {
    throw error;
  };
  const one = new Resends(store, { clock, stopped: first.signal, onError });
  const two = new Resends(store, { clock, stopped: other.signal, onError });
  void one.watch();
  void two.watch();
  await one.ask(ALL_TABLES);
  await pass(clock, 1);
  expect(touched).toEqual(['items']);
  // Too early: it waits, and is served when its time has come, once.
  await one.ask(ALL_TABLES);
  await pass(clock, 30);
  expect(touched).toEqual(['items', 'items']);
  await one.ask(ALL_TABLES);
  await pass(clock, 1);
  expect(touched).toHaveLength(3);
  await one.ask(ALL_TABLES);
  first.abort();
  await pass(clock, 15);
  expect(touched).toHaveLength(4);
  expect([...asked]).toEqual([]);
  other.abort();
});
