/** What machines ask a process: whether it turns, whether it is ready for work, and its figures. */

import { messageOf } from '../errors.ts';
import type { Incoming, Outgoing } from './bridge.ts';

const LIVE_PATH = '/livez';
const READY_PATH = '/readyz';
const METRICS_PATH = '/metrics';

/** What `collectMetrics` of `rowcast/metrics` gives. */
export interface Exposition {
  text(): Promise<string>;
  readonly contentType: string;
}

/** As far as readiness looks at it. */
interface Subject {
  health(): unknown;
  /** Where this is not what health says: of one of several that do the same. */
  readiness?(): unknown;
}

interface HealthSeen {
  ok: boolean;
  problems?: string[];
  peer_states?: { url: string; state: string; paused: boolean; snapshot?: boolean }[];
}

type Probe = (incoming: Incoming) => Promise<Outgoing>;

/** Who may read how much, and the figures, where there are any. */
interface ProbeOptions {
  metrics?: Exposition | undefined;
  /** What is said to somebody where nobody has to show a token. */
  otherwise?: 'all' | 'short';
  readers?:
    | {
        ofHealth(incoming: Incoming): 'all' | 'short' | Outgoing | undefined;
        refusal(incoming: Incoming, scope: 'health'): Outgoing | undefined;
      }
    | undefined;
}

/** The probe at a path; undefined where there is none. */
export function probeAt(
  path: string,
  manager: Subject,
  { metrics, readers, otherwise = 'all' }: ProbeOptions,
): Probe | undefined {
  // No look at the database: a process that is stuck in it is for /readyz to tell, and no reason to kill it.
  if (path === LIVE_PATH) return async () => json(200, { ok: true });
  if (path === READY_PATH)
    return async (incoming) => {
      const much = readers?.ofHealth(incoming) ?? otherwise;
      if (typeof much !== 'string') return much;
      const answer = await readiness(manager, new URLSearchParams(incoming.query ?? '').get('peers') === '1');
      return much === 'all' ? answer : json(answer.status, { ready: answer.status === 200 });
    };
  if (path === METRICS_PATH && metrics)
    return async (incoming) => readers?.refusal(incoming, 'health') ?? (await scrape(metrics));
  return undefined;
}

/**
 * Ready is who is well and has given all it has to the peers that it reaches. With `peers`, every one of them must be up,
 * too. A stopped manager has no health, and is not ready.
 */
async function readiness(manager: Subject, peers: boolean): Promise<Outgoing> {
  try {
    const {
      ok,
      problems = [],
      peer_states: states = [],
    } = (await (manager.readiness ?? manager.health).call(manager)) as HealthSeen;
    const active = states.filter(({ paused }) => !paused);
    const why = [
      ...problems,
      ...active
        .filter(({ state, snapshot }) => state === 'up' && snapshot)
        .map(({ url }) => `the first exchange with ${url} is under way`),
      ...(peers ? active.filter(({ state }) => state !== 'up').map(({ url, state }) => `${url} is ${state}`) : []),
    ];
    const ready = ok && why.length === 0;
    return json(ready ? 200 : 503, { ready, problems: why });
  } catch (error) {
    return json(503, { ready: false, problems: [messageOf(error)] });
  }
}

async function scrape(metrics: Exposition): Promise<Outgoing> {
  try {
    return { status: 200, headers: { 'content-type': metrics.contentType }, body: await metrics.text() };
  } catch (error) {
    return json(503, { error: messageOf(error) });
  }
}

function json(status: number, body: unknown): Outgoing {
  return { status, headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
}
