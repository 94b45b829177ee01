/** Certificates from files: what is wrong with them is said at the start, and their end is told before it comes. */
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { certificatesInHealth, TlsFiles, watchEnds } from '../../src/cli/tls-files.ts';
import { attach } from '../../src/index.ts';
import { authority, hasOpenssl, openssl } from '../support/certificates.ts';
import { cleanUp, database, node, scratchFolder } from '../support/nodes.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const NONE = {
  tlsCert: undefined,
  tlsKey: undefined,
  tlsClientCa: undefined,
  tlsCa: undefined,
  tlsClientCert: undefined,
  tlsClientKey: undefined,
};
const DAY = 86_400_000;

function scratch(name: string, text: string): string {
  const path = join(scratchFolder(), name);
  writeFileSync(path, text);
  return path;
}

describe.skipIf(!hasOpenssl)('the files', () => {
  test('of both sides are read', () => {
    const ca = authority();
    const a = ca.issue('a');
    const tls = new TlsFiles({
      tlsCert: a.certFile,
      tlsKey: a.keyFile,
      tlsClientCa: ca.certFile,
      tlsCa: ca.certFile,
      tlsClientCert: a.certFile,
      tlsClientKey: a.keyFile,
    });
    expect(tls.server).toEqual({ cert: a.cert, key: a.key, ca: ca.cert });
    expect(tls.sending).toEqual({ cert: a.cert, key: a.key, ca: ca.cert });
    expect(new Set(tls.files)).toEqual(new Set([a.certFile, a.keyFile, ca.certFile]));
    expect(new TlsFiles(NONE)).toMatchObject({ server: undefined, sending: undefined, files: [], warnings: [] });
  });

  test('that are wrong are named, with what is wrong and what to do', () => {
    const ca = authority();
    const [a, b] = [ca.issue('a'), ca.issue('b')];
    const locked = join(scratchFolder(), 'locked.key');
    openssl('pkcs8', '-topk8', '-in', a.keyFile, '-out', locked, '-passout', 'pass:secret');
    const text = scratch('text.pem', 'no certificate');
    const damaged = scratch('damaged.pem', a.cert.replace(/\n[^\n]+\n/, '\nAAAA\n'));
    const cases: [Partial<typeof NONE> | Record<string, string>, RegExp][] = [
      [{ tlsCert: '/nowhere/a.pem', tlsKey: a.keyFile }, /^-tls-cert \/nowhere\/a\.pem: cannot be read .*ENOENT/],
      [{ tlsCert: a.certFile }, /^-tls-key: is missing; a certificate needs its key$/],
      [{ tlsKey: a.keyFile }, /^-tls-cert: is missing; a key needs its certificate$/],
      [{ tlsCert: a.certFile, tlsKey: b.keyFile }, /^-tls-key .*b\.key: is not the key of the certificate/],
      [{ tlsCert: a.certFile, tlsKey: a.certFile }, /^-tls-key .*a\.pem: holds no private key/],
      [{ tlsCert: a.keyFile, tlsKey: a.keyFile }, /^-tls-cert .*a\.key: holds no certificate/],
      [{ tlsCert: a.certFile, tlsKey: locked }, /^-tls-key .*: is locked with a passphrase; give it without one/],
      [{ tlsCert: damaged, tlsKey: a.keyFile }, /^-tls-cert .*: has a damaged certificate, number 1/],
      [{ tlsCa: text }, /^-tls-ca .*text\.pem: holds no certificate; it must be PEM/],
      [{ tlsClientCa: ca.certFile }, /^-tls-client-ca is for a server with -tls-cert and -tls-key/],
      [{ tlsClientKey: a.keyFile }, /^-tls-client-cert: is missing/],
    ];
    for (const [flags, problem] of cases) expect(() => new TlsFiles({ ...NONE, ...flags })).toThrow(problem);
  });

  test('of keys that others may read are told of', () => {
    const a = authority().issue('a');
    const tls = new TlsFiles({ ...NONE, tlsCert: a.certFile, tlsKey: a.keyFile });
    chmodSync(a.keyFile, 0o600);
    expect(tls.warnings).toEqual([]);
    chmodSync(a.keyFile, 0o640);
    expect(tls.warnings).toMatchObject([{ code: 'secret-readable', message: expect.stringContaining('chmod 600') }]);
  });

  test('count anew only when they are right, and only when asked to', async () => {
    const ca = authority();
    const [a, b] = [ca.issue('a'), ca.issue('b')];
    const [cert, key] = [scratch('cert', a.cert), scratch('key', a.key)];
    const tls = new TlsFiles({ ...NONE, tlsCert: cert, tlsKey: key });
    const used: unknown[] = [];
    tls.onChange(async (contents) => void used.push(contents.server?.cert));
    expect(tls.reread()).toBeUndefined();
    writeFileSync(cert, b.cert);
    expect(() => tls.reread()).toThrow(/is not the key of the certificate/);
    writeFileSync(key, b.key);
    const become = tls.reread();
    expect([tls.server?.cert, used]).toEqual([a.cert, []]);
    await become?.();
    expect([tls.server?.cert, used]).toEqual([b.cert, [b.cert]]);
  });
});

describe.skipIf(!hasOpenssl)('the end of a certificate', () => {
  const files = (days: number): { tls: TlsFiles; from: number } => {
    const a = authority().issue('a', { days });
    const tls = new TlsFiles({ ...NONE, tlsCert: a.certFile, tlsKey: a.keyFile });
    return { tls, from: Date.parse(tls.ends(0)[0]?.expires_at as string) - days * DAY };
  };

  test('is told 14 days before, or when a quarter of its time is left', () => {
    for (const [days, fine, soon] of [
      [90, 75.9, 76.1],
      [6, 4.4, 4.6],
    ] as const) {
      const { tls, from } = files(days);
      const state = (day: number): unknown => tls.ends(from + day * DAY)[0]?.state;
      expect([state(-1), state(0.1), state(fine)]).toEqual(['not-yet-valid', 'valid', 'valid']);
      expect([state(soon), state(days - 0.01), state(days + 0.01)]).toEqual(['ends-soon', 'ends-soon', 'ended']);
    }
    const { tls, from } = files(90);
    expect(tls.ends(from + 80.5 * DAY)[0]?.message).toMatch(/^the certificate of -tls-cert ends in 9 days, on 20/);
  });

  test('is a warning in health before it comes, and a problem after', async () => {
    const { tls, from } = files(90);
    const { manager } = await node();
    const clock = new VirtualClock();
    const at = async (day: number): Promise<unknown> => {
      await clock.jump(from + day * DAY - clock.now());
      return certificatesInHealth(tls, clock)(manager.health());
    };
    const certificate = { flag: 'tls-cert', expires_at: new Date(from + 90 * DAY).toISOString() };
    expect(await at(1)).toMatchObject({
      ok: true,
      node_id: 'node',
      problems: [],
      warnings: [],
      certificates: [{ ...certificate, state: 'valid' }],
    });
    expect(await at(85)).toMatchObject({ ok: true, problems: [], warnings: [expect.stringMatching(/ends in 5 days/)] });
    const ended = { ok: false, problems: [expect.stringMatching(/ended on/)], warnings: [] };
    expect(await at(91)).toMatchObject(ended);
    const plain = certificatesInHealth(new TlsFiles(NONE), clock)(manager.health());
    expect(plain).toEqual(manager.health());
  });

  test('is in the log at the start and once a day', async () => {
    const { tls, from } = files(90);
    const clock = new VirtualClock();
    await clock.jump(from + 75.5 * DAY - clock.now());
    const logged: unknown[] = [];
    const watching = watchEnds(tls, (level, _event, fields) => logged.push({ level, ...fields }), clock);
    cleanUp(() => watching.stop());
    await clock.advance(1);
    const warnings = (): unknown[] => logged.filter((line) => /certificate-/.test(JSON.stringify(line)));
    expect(warnings()).toEqual([]);
    await clock.advance(2 * DAY);
    expect(warnings()).toMatchObject([
      { level: 'warn', code: 'certificate-ends-soon', message: expect.stringMatching(/in 13 days/) },
      { level: 'warn', code: 'certificate-ends-soon', message: expect.stringMatching(/in 12 days/) },
    ]);
    await clock.advance(13 * DAY);
    expect(warnings().at(-1)).toMatchObject({ level: 'error', code: 'certificate-ended' });
  });
});

describe.skipIf(!hasOpenssl)('the option tls of attach', () => {
  const attachWith = async (config: object): Promise<void> => {
    const manager = attach(await database(), { id: 'a', peers: [], ...config }, ['items']);
    cleanUp(() => manager.stop());
  };

  test('is checked', async () => {
    const ca = authority();
    const [a, b] = [ca.issue('a'), ca.issue('b')];
    const cases: [unknown, RegExp][] = [
      ['x', /option "tls" must be an object \{ca, cert, key\}/],
      [{ certs: a.cert }, /option "tls" has no "certs"; did you mean cert\?/],
      [{ ca: 5 }, /option "tls\.ca" must be PEM text/],
      [{ rejectUnauthorized: false }, /option "tls" has no "rejectUnauthorized"/],
      [{ cert: a.cert }, /option "tls\.key" is missing/],
      [{ cert: a.cert, key: b.key }, /option "tls\.key" is not the key of the certificate/],
    ];
    for (const [tls, problem] of cases) await expect(attachWith({ tls })).rejects.toThrow(problem);
    await attachWith({ tls: { ca: ca.cert, cert: a.cert, key: a.key } });
  });

  test('is refused beside a fetch that would not use it', async () => {
    const ca = authority();
    const fetch = async (): Promise<never> => Promise.reject(new Error('nobody'));
    await expect(attachWith({ fetch, tls: { ca: ca.cert } })).rejects.toThrow(/"tls" says nothing to a "fetch"/);
    const { manager } = await node({ fetch });
    expect(() => manager.configure({ tls: { ca: ca.cert }, batchMs: 5 })).toThrow(/says nothing to a "fetch"/);
  });
});
