/** The six item routes. Anything else is left to whoever comes next. */
import type { Incoming, Outgoing } from '../../http/bridge.ts';
import { noRoom } from '../../http/respond.ts';
import { refuseIfHeld, yielding } from '../../sqlite/yielding.ts';
import { BATCH_BYTES_MAX, ITEM_BYTES_MAX, Refused, readItem, readItems, readPatch } from './input.ts';
import type { ItemStore } from './store.ts';

const BASE = '/api/items';
const BATCH = `${BASE}/batch`;

export interface ItemOptions {
  /** Called after every write. */
  changed(): void;
  /** The answer to a request that may not do this; undefined where it may. */
  refusal(incoming: Incoming, right: 'read' | 'write'): Outgoing | undefined;
}

/** Answers an item route; undefined where the path is not one. */
export async function respondItems(
  store: ItemStore,
  incoming: Incoming,
  { changed, refusal }: ItemOptions,
): Promise<Outgoing | undefined> {
  const routes = routesFor(store, incoming.path);
  if (!routes) return undefined;
  const refused = refusal(incoming, incoming.method === 'GET' || incoming.method === 'HEAD' ? 'read' : 'write');
  if (refused) return refused;
  const method = incoming.method === 'HEAD' && routes.GET ? 'GET' : incoming.method;
  const route = Object.hasOwn(routes, method) ? routes[method] : undefined;
  if (!route) return notAllowed(Object.keys(routes));
  const body = route.bytesMax === undefined ? new Uint8Array() : await readBody(incoming, route.bytesMax);
  if ('status' in body) return body;
  try {
    const { status, json } = await yielding(store.connection, () => {
      if (method !== 'GET') refuseIfHeld(store.connection);
      return route.run(body);
    });
    if (method !== 'GET' && status < 400) changed();
    return answer(status, json);
  } catch (error) {
    if (error instanceof Refused) return failed(400, error.message);
    throw error;
  }
}

interface Route {
  /** Largest body; a route without it has none. */
  bytesMax?: number;
  run(body: Uint8Array): { status: number; json: string };
}

function routesFor(store: ItemStore, path: string): Record<string, Route> | undefined {
  if (path === BASE) return collectionRoutes(store);
  if (path === BATCH) return { POST: batchRoute(store) };
  const segment = path.startsWith(`${BASE}/`) ? path.slice(BASE.length + 1) : '';
  if (segment === '' || segment.includes('/')) return undefined;
  return itemRoutes(store, decoded(segment));
}

function collectionRoutes(store: ItemStore): Record<string, Route> {
  return {
    GET: { run: () => ({ status: 200, json: `[${store.latest().join(',')}]` }) },
    POST: {
      bytesMax: ITEM_BYTES_MAX,
      run: (body) => ({ status: 201, json: store.create(readItem(store.connection, body)) }),
    },
  };
}

function batchRoute(store: ItemStore): Route {
  return {
    bytesMax: BATCH_BYTES_MAX,
    run: (body) => {
      const items = store.createAll(readItems(store.connection, body));
      return { status: 201, json: `{"created":${items.length},"items":[${items.join(',')}]}` };
    },
  };
}

function itemRoutes(store: ItemStore, id: string): Record<string, Route> {
  const found = (json: string | undefined): { status: number; json: string } =>
    json === undefined ? { status: 404, json: JSON.stringify({ error: 'no such item' }) } : { status: 200, json };
  return {
    GET: { run: () => found(store.get(id)) },
    PUT: { bytesMax: ITEM_BYTES_MAX, run: (body) => found(store.update(id, readPatch(store.connection, body))) },
    DELETE: {
      run: () => {
        const deleted = store.delete(id);
        return found(deleted === undefined ? undefined : JSON.stringify({ deleted }));
      },
    },
  };
}

async function readBody(incoming: Incoming, max: number): Promise<Uint8Array | Outgoing> {
  const type = incoming.header('content-type')?.split(';')[0]?.trim().toLowerCase();
  if (type !== 'application/json') {
    return failed(415, `content-type must be application/json, not ${type ?? 'missing'}`);
  }
  const tooLarge = (): Outgoing => failed(413, `the body is larger than ${max} bytes`);
  if (Number(incoming.header('content-length') ?? 0) > max) return tooLarge();
  const body = await incoming.read(max);
  if (body === 'no-room') return noRoom();
  return body === 'too-large' ? tooLarge() : body;
}

/** A segment that is not valid percent-encoding names no item, and is looked up as it is. */
function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

function notAllowed(methods: string[]): Outgoing {
  const allow = methods.flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method])).join(', ');
  const { status, headers, body } = failed(405, `use ${allow}`);
  return { status, headers: { ...headers, allow }, body };
}

function failed(status: number, error: string): Outgoing {
  return answer(status, JSON.stringify({ error }));
}

function answer(status: number, body: string): Outgoing {
  return { status, headers: { 'content-type': 'application/json' }, body };
}
