/**
 * Authorities and certificates for one test, made by openssl when they are needed: none is checked in, so none can be
 * believed by mistake or run out. Where openssl is missing the tests that need it are skipped with a message; in CI that
 * is a failure.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { scratchFolder } from './nodes.ts';

const MISSING = 'openssl is not installed, and certificates are made by it';

export const hasOpenssl = spawnSync('openssl', ['version']).status === 0;
if (!hasOpenssl && process.env.CI) throw new Error(MISSING);
if (!hasOpenssl) console.log(`skipped: ${MISSING}`);

/** A certificate and its key, as files and as text. */
export interface Pair {
  certFile: string;
  keyFile: string;
  cert: string;
  key: string;
}

export interface Authority extends Pair {
  /** A certificate for loopback, or for other names (`DNS:b.test`), signed by this authority. */
  issue(name: string, options?: { names?: string[]; days?: number }): Pair;
}

const LOOPBACK = ['IP:127.0.0.1', 'DNS:localhost'];
const NEW_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

export function authority(name = 'authority'): Authority {
  const folder = scratchFolder();
  const at = (file: string): string => join(folder, file);
  const pair = (named: string): Pair => {
    const [certFile, keyFile] = [at(`${named}.pem`), at(`${named}.key`)];
    return { certFile, keyFile, cert: readFileSync(certFile, 'utf8'), key: readFileSync(keyFile, 'utf8') };
  };
  const files = (named: string): string[] => ['-keyout', at(`${named}.key`), '-subj', `/CN=${named}`];
  openssl('req', '-x509', ...NEW_KEY, ...files(name), '-out', at(`${name}.pem`), '-days', '2');
  const issue: Authority['issue'] = (named, { names = LOOPBACK, days = 2 } = {}) => {
    writeFileSync(at('extensions'), `subjectAltName=${names.join(',')}\n`);
    openssl('req', '-new', ...NEW_KEY, ...files(named), '-out', at(`${named}.csr`));
    const signer = ['-CA', at(`${name}.pem`), '-CAkey', at(`${name}.key`), '-CAcreateserial'];
    const made = ['-in', at(`${named}.csr`), '-out', at(`${named}.pem`), '-extfile', at('extensions')];
    openssl('x509', '-req', ...made, ...signer, '-days', String(days));
    return pair(named);
  };
  return { ...pair(name), issue };
}

export function openssl(...args: string[]): string {
  return execFileSync('openssl', args, { stdio: ['ignore', 'pipe', 'pipe'], encoding: 'utf8' });
}
