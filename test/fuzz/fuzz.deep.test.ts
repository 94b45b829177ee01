/**
 * Thirty-six thousand inputs over three lanes: batches as chance makes them, against `receive` and against the HTTP edge.
 *
 * `npm run fuzz -- <inputs> [seed]` runs more of them. A failure prints the command that runs exactly that input again.
 */
import { Buffer } from 'node:buffer';
import http from 'node:http';
import { describe, expect, test } from 'vitest';
import { createHandler, createListener } from '../../src/http/index.ts';
import { origin } from '../support/elsewhere.ts';
import { lane } from '../support/lane.ts';
import { cleanUp, database, exactRows, node, rowsOf, serve, serveManager } from '../support/nodes.ts';
import { startNode } from '../support/programs.ts';
import {
  ask,
  BODY_MAX,
  byHandler,
  byHttp,
  makeHttpInput,
  makeItemInput,
  makeRawRequest,
  sendRaw,
  sent,
} from './http.ts';
import { FUZZ_SCHEMA, FUZZ_TABLES, type Input, makeInput, type RequestShape } from './inputs.ts';
import { field, type Json, readJson } from './json.ts';
import { byReceive, Failed, Fuzz, PARK_CODES, type Route, show, shrink } from './run.ts';

/** Each lane has inputs of its own. */
const LANE_SEED = process.versions.node.startsWith('20.')
  ? 1
  : lane === 'node-sqlite'
    ? 2
    : lane === 'bun-sqlite'
      ? 3
      : 4;
const SEED = Number(process.env.ROWCAST_FUZZ_SEED ?? LANE_SEED);
const INPUTS = Number(process.env.ROWCAST_FUZZ_INPUTS ?? (lane === 'better-sqlite3' ? 12_000 : 6_000));
/** `receive:<index>`: that input alone, with the history that leads to it. */
const REPLAY = process.env.ROWCAST_FUZZ_REPLAY?.split(':');
/** Inputs from one empty database to the next. */
const HISTORY = 300;

/** What a real node has shipped: every type of value, deletions, a snapshot. */
async function realBodies(): Promise<Json[]> {
  const from = await origin({ schema: FUZZ_SCHEMA, tables: FUZZ_TABLES, batchSize: 3 });
  const values = [
    "'text'",
    '1',
    '9007199254740993',
    '-9223372036854775808',
    '1.5',
    '9e999',
    "x'00ff'",
    'NULL',
    "'$blob:00'",
  ];
  values.forEach((value, i) => {
    const time = 1_700_000_000_000 + i;
    from.db.exec(
      `INSERT INTO items VALUES ('r${i % 5}', ${value}, ${value}, ${value}, ${time}) ON CONFLICT DO UPDATE SET name = excluded.name, updated_at = ${time}`,
    );
    from.db.exec(`INSERT INTO "Odd ""Table" VALUES ('r${i}', ${value}, ${value}, ${value}, ${value}, ${time})`);
    from.db.exec(`INSERT INTO picky VALUES ('r${i}', 'must', ${value}, ${value}, ${time})`);
    from.db.exec(`INSERT INTO exact VALUES ('r${i}', ${i}, 't', x'0${i}', ${value}, ${time})`);
    from.db.exec(`INSERT INTO uniq VALUES ('r${i}', '${i}', ${time})`);
  });
  from.db.exec(
    `DELETE FROM items WHERE id = 'r1'; DELETE FROM "Odd ""Table" WHERE id = 'r2'; UPDATE picky SET id = 'moved' WHERE id = 'r3'`,
  );
  await from.manager.flush();
  return from.bodies.map((body) => readJson(body)?.json as Json);
}

/** Runs inputs `first` up to `end` of a part, one history after the other. */
async function run(
  part: string,
  count: number,
  make: (index: number) => Input,
  route: Route,
  fuzz: Fuzz,
): Promise<void> {
  const replay = REPLAY?.[0] === part ? Number(REPLAY[1]) : undefined;
  if (REPLAY && replay === undefined) return;
  const start = replay === undefined ? 0 : replay - (replay % HISTORY);
  const end = replay === undefined ? count : replay + 1;
  console.log(`fuzz ${part}: seed ${SEED}, inputs ${start} to ${end - 1}`);
  for (let first = start; first < end; first += HISTORY) {
    const inputs = Array.from({ length: Math.min(HISTORY, end - first) }, (_, i) => make(first + i));
    try {
      await fuzz.history(inputs, route, SEED + first);
    } catch (error) {
      if (!(error instanceof Failed)) throw error;
      await report(part, first, inputs, route, fuzz, error);
    }
  }
}

async function report(
  part: string,
  first: number,
  inputs: Input[],
  route: Route,
  fuzz: Fuzz,
  error: Failed,
): Promise<never> {
  const fails = async (fewer: Input[]): Promise<boolean> => {
    try {
      await fuzz.history(fewer, route, SEED + first);
      return false;
    } catch (again) {
      if (!(again instanceof Failed)) throw again;
      // Not another failure instead.
      return again.message.slice(0, 12) === error.message.slice(0, 12);
    }
  };
  const fewer = await shrink(inputs.slice(0, error.step + 1), fails);
  const name = {
    'node-sqlite': 'node-sqlite',
    'bun-sqlite': 'bun',
    'better-sqlite3': LANE_SEED === 1 ? 'node' : 'node-current',
  };
  throw new Error(
    [
      `seed ${SEED}, input ${first + error.step} of ${part}: ${error.message}`,
      error.input ? `input: ${show(error.input)}` : `seen at the end of the history ${first} to ${first + error.step}`,
      `again: ROWCAST_LANES=${name[lane]} npm run fuzz -- replay ${part} ${SEED} ${first + error.step}`,
      `${fewer.length} input${fewer.length > 1 ? 's that show' : ' that shows'} it:`,
      ...fewer.map((input) => `  ${show(input)}`),
    ].join('\n'),
    { cause: error },
  );
}

/** The share of the inputs that goes over HTTP. */
const HTTP_INPUTS = Math.ceil(INPUTS / 22);
const NO_LIMIT = 24 * 3_600_000;

test(
  'whatever is received is refused and changes nothing, or is merged as the version order has it',
  async () => {
    const corpus = await realBodies();
    expect(corpus.length).toBeGreaterThan(10);
    const fuzz = await Fuzz.start();
    await run('receive', INPUTS, (index) => makeInput(SEED, index, corpus), byReceive, fuzz);
    const { inputs, accepted, applied, stale, codes } = fuzz.seen;
    console.log(`fuzz receive: ${accepted} of ${inputs} accepted, ${applied} changes applied, ${stale} stale`, codes);
    if (REPLAY) return;
    // Inputs of which hardly any get through would test very little.
    expect(accepted / inputs).toBeGreaterThan(0.4);
    expect(Math.min(applied, stale) / inputs).toBeGreaterThan(0.15);
    expect([...codes.keys()].sort()).toEqual([...PARK_CODES].sort());
  },
  NO_LIMIT,
);

describe('over HTTP', () => {
  test.each(['handler', 'listener'])(
    'whatever is asked of the %s gets the answer that it should, and never 500',
    async (way) => {
      const corpus = await realBodies();
      const fuzz = await Fuzz.start({ maxBodyBytes: BODY_MAX });
      const agent = new http.Agent({ keepAlive: true });
      cleanUp(() => agent.destroy());
      const route =
        way === 'handler'
          ? byHandler(createHandler(fuzz.manager))
          : byHttp(await serve(createListener(fuzz.manager)), agent);
      await run(way, HTTP_INPUTS, (index) => makeHttpInput(SEED, index, corpus), route, fuzz);
    },
    NO_LIMIT,
  );

  test.skipIf(REPLAY !== undefined)(
    'what is hardly HTTP is a client error or the end of the connection, and nothing else happens',
    async () => {
      const made = await node();
      const url = await serveManager(made.manager);
      const body = `{"batch_id":1,"changes":[{"op":"INSERT","table":"items","row":{"id":"raw","name":"n","value":1,"created_at":1,"updated_at":2000},"old_id":null}]}`;
      const seen = new Map<number, number>();
      for (let first = 0; first < Math.min(HTTP_INPUTS, 2_000); first += 20) {
        const group = Array.from({ length: 20 }, (_, i) => first + i);
        await Promise.all(
          group.map(async (index) => {
            const bytes = makeRawRequest(SEED, index, body);
            for (const status of await sendRaw(Number(new URL(url).port), bytes)) {
              seen.set(status, (seen.get(status) ?? 0) + 1);
              const fine =
                status === 200 || status === 100 || (status >= 400 && status < 500) || status === 501 || status === 505;
              expect(
                fine,
                `seed ${SEED}, request ${index}: ${status} to ${JSON.stringify(bytes.toString('latin1').slice(0, 500))}`,
              ).toBe(true);
            }
          }),
        );
      }
      expect(seen.get(200)).toBeGreaterThan(0);
      expect(seen.get(400)).toBeGreaterThan(0);
      expect(made.manager.health()).toMatchObject({ ok: true, item_count: 1, dead_letter: 0, pending_changes: 0 });
      expect(exactRows(made.db, 'items')).toEqual(["text:'raw'|text:'n'|integer:1|integer:1|integer:2000"]);
    },
  );

  test.skipIf(REPLAY !== undefined)(
    '`rowcast serve` answers every request to its routes and outlives them all',
    async () => {
      const corpus = await realBodies();
      const program = await startNode('a', ['-synchronous', 'normal']);
      const agent = new http.Agent({ keepAlive: true });
      cleanUp(() => agent.destroy());
      const created = new Set<string>();
      let accepted = 0;
      for (let index = 0; index < Math.min(HTTP_INPUTS, 5_000); index++) {
        const input = index % 2 === 0 ? makeItemInput(SEED, index) : makeHttpInput(SEED, index, corpus);
        const request = input.request as RequestShape;
        const { status, text } = await ask(program.url, request, sent(input), agent);
        const what = `seed ${SEED}, request ${index}: ${status} ${text.slice(0, 300)} to ${show(input)}`;
        expect([200, 201, 400, 404, 405, 413, 415], what).toContain(status);
        if (status >= 400 && text !== 'not found') expect(JSON.parse(text).error, what).toMatch(/\w{3}/);
        if (status === 200 && request.path.startsWith('/sync')) {
          const id = field(readJson(text)?.json, 'ack');
          const sent = field(readJson(Buffer.from(input.body).toString())?.json, 'batch_id');
          expect(BigInt(id?.kind === 'number' ? id.text : '-1'), what).toBe(
            BigInt(sent?.kind === 'number' ? sent.text : '0'),
          );
          accepted += 1;
        }
        if (status === 201) {
          const made = JSON.parse(text);
          for (const { id } of made.items ?? [made]) created.add(id);
        }
      }
      expect(Math.min(created.size, accepted)).toBeGreaterThan(0);
      program.child.kill('SIGTERM');
      expect(await program.ended, program.output()).toBe(0);
      expect(program.output()).not.toMatch(/"event":"error"/);
      const db = await database('PRAGMA user_version', program.db);
      expect(rowsOf(db, 'PRAGMA integrity_check')).toEqual([{ integrity_check: 'ok' }]);
      expect(rowsOf(db, "SELECT value FROM _meta WHERE key = 'syncing'")).toEqual([{ value: 0 }]);
      const known = new Set(
        rowsOf(db, 'SELECT id FROM items UNION SELECT row_id FROM _tombstones').map(({ id }) => id),
      );
      expect([...created].filter((id) => !known.has(id))).toEqual([]);
    },
  );
});
