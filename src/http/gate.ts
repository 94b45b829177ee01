/**
 * Who is let in. Where there are keys, a request of a peer is verified before anything of its body is read, and whatever
 * is answered to one that was signed is signed as well.
 */
import { Hashing } from '../auth/digest.ts';
import type { Sender } from '../auth/requests.ts';
import type { Trust } from '../auth/trust.ts';
import { HEALTH_PATH, NODE_ID_HEADER } from '../wire/protocol.ts';
import type { BodyRead, Incoming, Outgoing } from './bridge.ts';

export interface Routes {
  /** For a peer: one that has signed, or, while unsigned requests are accepted, any. */
  peer(incoming: Incoming): Promise<Outgoing>;
  /** What anybody may know of `/health`. */
  stranger(incoming: Incoming): Promise<Outgoing>;
}

export async function letIn(trust: Trust, path: string, incoming: Incoming, routes: Routes): Promise<Outgoing> {
  const { method, header, address } = incoming;
  const verified = trust.verify({ method, path, header });
  switch (verified.kind) {
    case 'unsigned':
      if (trust.mode === 'accept') return await unsigned(trust, incoming, routes);
      if (path === HEALTH_PATH) return await routes.stranger(incoming);
      return await notAuthenticated(trust, address, 'it has no signature');
    case 'stranger':
      return await notAuthenticated(trust, address, verified.reason);
    case 'denied': {
      trust.turnedAway(address, verified.reason);
      const { sender, status, error } = verified;
      return signed(trust, sender, incoming, refusal(status, error));
    }
    case 'verified':
      return signed(trust, verified.sender, incoming, await answerTo(trust, verified.sender, incoming, routes));
  }
}

/** While unsigned requests are taken, they must not take the place of signed ones. */
async function unsigned({ strangers }: Trust, incoming: Incoming, routes: Routes): Promise<Outgoing> {
  if (!strangers.enter()) return refusal(503, { error: 'too many unsigned requests at a time: try again' });
  try {
    return await routes.peer(incoming);
  } finally {
    strangers.leave();
  }
}

async function answerTo(trust: Trust, sender: Sender, incoming: Incoming, routes: Routes): Promise<Outgoing> {
  if (!trust.enter(sender)) return refusal(429, { error: 'too many requests of this key at a time' });
  try {
    return await routes.peer(checked(sender, incoming));
  } catch (error) {
    if (!(error instanceof WrongDigest)) throw error;
    trust.turnedAway(incoming.address, 'the body is not the one that was signed');
    return refusal(401, { error: 'digest' });
  } finally {
    trust.leave(sender);
  }
}

/**
 * The request as its route sees it: its body comes whole and as it was signed, or not at all. That it is too large is said of
 * what was signed as well, and never by how long somebody on the way has made it: by that word a sender sets changes aside.
 */
function checked(sender: Sender, incoming: Incoming): Incoming {
  const read = async (max: number, tap?: (chunk: Uint8Array) => void): Promise<BodyRead> => {
    const hashing = new Hashing();
    const body = await incoming.read(max, (chunk) => {
      hashing.take(chunk);
      tap?.(chunk);
    });
    if (body !== 'no-room' && !hashing.fits(sender.digest)) throw new WrongDigest();
    return body;
  };
  return { ...incoming, read, sender };
}

class WrongDigest extends Error {}

function signed(trust: Trust, sender: Sender, { method }: Incoming, outgoing: Outgoing): Outgoing {
  const headers = { ...outgoing.headers, [NODE_ID_HEADER]: trust.id };
  const body = method === 'HEAD' ? '' : outgoing.body;
  return { ...outgoing, headers: { ...headers, ...trust.sign(sender, { ...outgoing, headers, body }) } };
}

/** The same words whatever the reason: a stranger learns nothing by trying. */
async function notAuthenticated(trust: Trust, address: string | undefined, reason: string): Promise<Outgoing> {
  trust.turnedAway(address, reason);
  await trust.strangers.turn();
  const outgoing = refusal(401, { error: 'not authenticated' });
  return {
    ...outgoing,
    headers: { ...outgoing.headers, 'www-authenticate': 'Rowcast-Signature', connection: 'close' },
  };
}

function refusal(status: number, error: object): Outgoing {
  return { status, headers: { 'content-type': 'application/json' }, body: JSON.stringify(error) };
}
