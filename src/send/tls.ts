/**
 * The certificates by which a sender knows its peers and is known to them. They are looked at before they are used: a
 * wrong one would otherwise show as a peer that cannot be reached. Nothing here can turn verification off.
 */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { messageOf, RowcastError, suggest } from '../errors.ts';

/** For `https:` peers; each is PEM text. */
export interface TlsOptions {
  /** The authorities whose certificates are believed, instead of those that Node or Bun know. */
  ca?: string;
  /** The certificate that is shown to peers that ask for one, with its chain, and its key. */
  cert?: string;
  key?: string;
}

export const TLS_MIN_VERSION = 'TLSv1.2';

/** What is wrong with one of the parts. */
export interface TlsProblem {
  part: keyof TlsOptions;
  problem: string;
  hint: string;
}

const PARTS: (keyof TlsOptions)[] = ['ca', 'cert', 'key'];

/** The option `tls` of attach, createHub and configure. */
export function checkTls(given: unknown): TlsOptions {
  if (typeof given !== 'object' || given === null) throw wrong('option "tls" must be an object {ca, cert, key}');
  for (const [name, value] of Object.entries(given)) {
    if (!(PARTS as string[]).includes(name)) {
      throw wrong(`option "tls" has no "${name}"${suggest(name, PARTS)}`, `it has ${PARTS.join(', ')}`);
    }
    if (value !== undefined && typeof value !== 'string') throw wrong(`option "tls.${name}" must be PEM text`);
  }
  const found = tlsProblem(given);
  if (found) throw wrong(`option "tls.${found.part}" ${found.problem}`, found.hint);
  const { ca, cert, key } = given as TlsOptions;
  return { ...(ca !== undefined && { ca }), ...(cert !== undefined && key !== undefined && { cert, key }) };
}

/** Undefined where nothing is wrong. */
export function tlsProblem({ ca, cert, key }: TlsOptions): TlsProblem | undefined {
  if (ca !== undefined) {
    const problem = certificatesProblem(ca);
    if (problem) return { part: 'ca', problem, hint: 'it must be PEM: the certificates of authorities' };
  }
  if (cert === undefined && key === undefined) return undefined;
  if (cert === undefined) return { part: 'cert', problem: 'is missing', hint: 'a key needs its certificate' };
  if (key === undefined) return { part: 'key', problem: 'is missing', hint: 'a certificate needs its key' };
  const problem = certificatesProblem(cert);
  if (problem) return { part: 'cert', problem, hint: 'it must be PEM: the certificate first, then its chain' };
  return keyProblem(cert, key);
}

/** When the first certificate of a file begins to count and when it ends, in milliseconds. */
export function validityOf(pem: string): { from: number; to: number } {
  const { validFrom, validTo } = new X509Certificate(pem);
  return { from: Date.parse(validFrom), to: Date.parse(validTo) };
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----/g;

function certificatesProblem(pem: string): string | undefined {
  const blocks = pem.match(CERTIFICATE);
  if (!blocks) return 'holds no certificate';
  for (const [index, block] of blocks.entries()) {
    try {
      new X509Certificate(block);
    } catch {
      return `has a damaged certificate, number ${index + 1}`;
    }
  }
  return undefined;
}

function keyProblem(cert: string, pem: string): TlsProblem | undefined {
  const refuse = (problem: string, hint: string): TlsProblem => ({ part: 'key', problem, hint });
  if (/-----BEGIN ENCRYPTED PRIVATE KEY-----|Proc-Type: 4,ENCRYPTED/.test(pem)) {
    return refuse('is locked with a passphrase', 'give it without one, in a file that only its owner can read');
  }
  try {
    if (new X509Certificate(cert).checkPrivateKey(createPrivateKey(pem))) return undefined;
  } catch {
    return refuse('holds no private key', 'it must be PEM: BEGIN PRIVATE KEY');
  }
  return refuse('is not the key of the certificate', 'the first certificate of the file and the key must be a pair');
}

/** Why a request has failed, with what to do about it where a certificate is the reason. */
export function explainFailure(error: unknown): string {
  // Bun has some codes in the message alone.
  const code = String((error as { code?: unknown } | null)?.code ?? /^[A-Z][A-Z_]+/.exec(messageOf(error)) ?? '');
  const hint = HINTS.find(([pattern]) => pattern.test(code))?.[1];
  // OpenSSL's own words have the number of a thread and a line of its source in them.
  const message = code.startsWith('ERR_SSL_') ? `TLS failed (${code})` : messageOf(error);
  // The hint first: what comes behind may be cut.
  return hint === undefined ? message : `${hint} (${message})`;
}

const HINTS: [RegExp, string][] = [
  [
    /^(UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO)/,
    'its certificate is of no authority that is trusted here; tls.ca, or -tls-ca, names them',
  ],
  [/^CERT_HAS_EXPIRED/, 'the certificate of the peer has ended, or the clock here is wrong'],
  [/^CERT_NOT_YET_VALID/, 'the certificate of the peer does not count yet, or the clock here is wrong'],
  [/ALTNAME/, 'the certificate of the peer is for another name than the URL has'],
  [
    /ALERT_(CERTIFICATE|BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|UNKNOWN_CA)/,
    'the peer wants another client certificate than it is shown; tls.cert and tls.key, or -tls-client-cert',
  ],
  [
    /^(EPROTO|ERR_SSL_WRONG_VERSION_NUMBER|ERR_SSL_PACKET_LENGTH_TOO_LONG)/,
    'does it serve https, and does it want a client certificate?',
  ],
];

function wrong(message: string, hint?: string): RowcastError {
  return new RowcastError('INVALID_OPTION', message, hint === undefined ? {} : { hint });
}
