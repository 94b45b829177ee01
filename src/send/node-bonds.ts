/** A node's bonds, with who is held to a URL in `_peer_state`. */
import type { CheckedAuth } from '../auth/keys.ts';
import type { Connection } from '../sqlite/connection.ts';
import { Bonds, type BondsOptions } from './bonds.ts';
import { pinnedPeers, pinPeer } from './peers.ts';
import type { Ask, Transport } from './transport.ts';

export interface NodeBondsOptions extends Omit<BondsOptions, 'kept' | 'keep' | 'get'> {
  transport: Transport;
}

/** Undefined without keys. */
export function nodeBonds(
  auth: CheckedAuth | undefined,
  db: Connection,
  { transport, ...options }: NodeBondsOptions,
): Bonds | undefined {
  if (!auth) return undefined;
  const keep = (url: string, id: string): void => pinPeer(db, url, id);
  // With keys there is a way to ask: the options are checked for it.
  return new Bonds(auth, { ...options, get: transport.get as Ask, kept: pinnedPeers(db), keep });
}
