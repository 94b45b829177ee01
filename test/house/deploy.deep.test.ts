/**
 * The files of deploy/, as far as a machine without Docker and without systemd as its first process can try them: what the
 * image starts is started with the image's own words, asked by its own healthcheck and stopped by SIGTERM; the units go
 * through systemd-analyze where that is installed. The public workflow builds and runs the image itself.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { cpSync, existsSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { authority, hasOpenssl } from '../support/certificates.ts';
import { cleanUp, scratchFolder, until } from '../support/nodes.ts';
import { freePorts } from '../support/programs.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
const read = (name: string): string => readFileSync(join(root, name), 'utf8');
const dockerfile = read('deploy/Dockerfile');
const entry = '/app/node_modules/rowcast/';

function instruction(name: string): string {
  return new RegExp(`^${name} (.*)$`, 'gm').exec(dockerfile.slice(dockerfile.lastIndexOf('\nFROM ')))?.[1] ?? '';
}

/** `KEY=value` pairs, of the image's ENV line or of an .env file. */
function variables(text: string): Record<string, string> {
  return Object.fromEntries([...text.matchAll(/(?:^|\s)([A-Z_]+)=(\S+)/g)].map(([, key, value]) => [key, value]));
}

describe('the image', () => {
  test('copies what is there, runs unprivileged, and keeps its data in a volume', () => {
    for (const [, sources] of dockerfile.matchAll(/^COPY (?!--from)(.*) \S+$/gm)) {
      for (const source of (sources as string).split(' ')) expect(existsSync(join(root, source)), source).toBe(true);
    }
    expect(instruction('USER')).toBe('node');
    expect(instruction('VOLUME')).toBe('/data');
    expect(variables(instruction('ENV')).ROWCAST_DB).toMatch(/^\/data\//);
  });

  test('copies all that building the package takes', () => {
    const there = scratchFolder();
    const [build = ''] = dockerfile.split(/^RUN npm run build/m);
    for (const [, sources, target = ''] of build.matchAll(/^COPY (?!--from)(.*) (\S+)$/gm)) {
      for (const source of (sources as string).split(' ')) {
        const isFolder = statSync(join(root, source)).isDirectory();
        cpSync(join(root, source), join(there, isFolder ? target : basename(source)), { recursive: true });
      }
    }
    symlinkSync(join(root, 'node_modules'), join(there, 'node_modules'));
    const { status, stdout, stderr } = spawnSync('npm', ['run', 'build'], { cwd: there, encoding: 'utf8' });
    expect([status, stderr], stdout).toEqual([0, expect.any(String)]);
    const { bin } = JSON.parse(read('package.json')) as { bin: Record<string, string> };
    for (const program of Object.values(bin)) expect(existsSync(join(there, program)), program).toBe(true);
    const built = (of: string): string[] => readdirSync(join(of, 'dist'), { recursive: true, encoding: 'utf8' }).sort();
    expect(built(there)).toEqual(built(root));
  });

  test('starts the program that the package calls rowcast, without a shell in between', () => {
    const manifest = JSON.parse(read('package.json'));
    expect(JSON.parse(instruction('ENTRYPOINT'))).toEqual(['node', `${entry}${manifest.bin.rowcast}`]);
    expect(JSON.parse(instruction('CMD'))).toEqual(['serve']);
    expect(dockerfile).toContain('FROM node:20-');
    expect(read('.nvmrc').trim()).toBe('20');
  });

  test('is well by its own healthcheck while it runs, and ends in order by SIGTERM', async () => {
    await isWellWhileItRuns((port) => ({ ROWCAST_LISTEN: `127.0.0.1:${port}` }));
  });

  test.each<[string, (port: number) => Record<string, string>]>([
    ['on every address', (port) => ({ ROWCAST_LISTEN: `:${port}` })],
    ['on IPv6', (port) => ({ ROWCAST_LISTEN: `[::1]:${port}` })],
    ['on another address of loopback', (port) => ({ ROWCAST_LISTEN: `127.0.0.2:${port}` })],
  ])('and so it is %s', (_, settings) => isWellWhileItRuns(settings));

  test.skipIf(!hasOpenssl)('and so it is with certificates, of which clients have to show one, too', async () => {
    const one = authority();
    const { certFile, keyFile } = one.issue('a', { names: ['DNS:a.test'] });
    const tls = { ROWCAST_TLS_CERT: certFile, ROWCAST_TLS_KEY: keyFile };
    await isWellWhileItRuns((port) => ({ ROWCAST_LISTEN: `127.0.0.1:${port}`, ...tls }));
    const both = { ...tls, ROWCAST_TLS_CLIENT_CA: one.certFile };
    await isWellWhileItRuns((port) => ({ ROWCAST_LISTEN: `127.0.0.1:${port}`, ...both }));
  });

  async function isWellWhileItRuns(more: (port: number) => Record<string, string>): Promise<void> {
    const [port = 0] = await freePorts(1);
    const settings = { ...variables(instruction('ENV')), ROWCAST_ID: 'a', ...more(port) };
    const env = { ...settings, ROWCAST_DB: join(scratchFolder(), 'rowcast.db'), PATH: process.env.PATH };
    const healthcheck = (): number | null =>
      spawnSync(process.execPath, [join(root, 'deploy', 'healthcheck.mjs')], { env, stdio: 'ignore' }).status;
    expect(healthcheck()).toBe(1);

    const [, program, ...rest] = [...JSON.parse(instruction('ENTRYPOINT')), ...JSON.parse(instruction('CMD'))];
    const child = start([program.replace(entry, root), ...rest], env);
    await until('it has started', () => child.output.includes('"started"'));
    expect(healthcheck()).toBe(0);
    child.process.kill('SIGTERM');
    expect(await child.ended).toBe(0);
    expect(child.output).toContain('"stopped"');
    expect(healthcheck()).toBe(1);
  }
});

test('the three nodes of compose.yaml name each other, each with a volume of its own', () => {
  const services =
    read('deploy/compose.yaml')
      .split(/^services:$/m)[1]
      ?.split(/^networks:$/m)[0] ?? '';
  const nodes = services.split(/^ {2}(?=\w)/m).filter((text) => text.trim() !== '');
  const ids = nodes.map((text) => text.slice(0, text.indexOf(':')));
  expect(ids).toHaveLength(3);
  for (const [index, text] of nodes.entries()) {
    const id = ids[index] as string;
    const others = ids.filter((other) => other !== id).map((other) => `http://${other}:9001`);
    expect(text).toContain(`ROWCAST_ID: ${id}\n`);
    expect(text).toContain(`ROWCAST_PEER: ${others.join(',')}\n`);
    expect(text).toContain(`["${id}:/data"]`);
    expect(text).toMatch(/ports: \["127\.0\.0\.1:\d+:9001"\]/);
  }
});

describe('a group', () => {
  const compose = readYaml('deploy/compose-group.yaml');
  const [deployment, service] = readYaml('deploy/kubernetes-group.yaml') as [Yaml, Yaml];
  const container = at(deployment, 'spec', 'template', 'spec', 'containers', 0);

  test('the hubs of compose-group.yaml share the database that is there, and know the nodes that know them', () => {
    const { db, hub, a, b } = compose.services as Record<string, Yaml>;
    const { environment } = db as Yaml;
    const store = new URL(at(hub, 'environment', 'ROWCAST_STORE').replaceAll(/\$\{\w+\}/g, 'password'));
    expect([store.protocol, store.hostname]).toEqual(['postgres:', 'db']);
    expect([store.username, store.pathname]).toEqual([environment.POSTGRES_USER, `/${environment.POSTGRES_DB}`]);
    expect(at(hub, 'command')).toEqual(['hub']);
    expect(at(hub, 'deploy', 'replicas')).toBe(3);
    expect(at(hub, 'depends_on', 'db', 'condition')).toBe('service_healthy');
    expect(at(hub, 'environment', 'ROWCAST_EDGE')).toBe('http://a:9001,http://b:9001');
    for (const [id, node] of Object.entries({ a, b })) {
      expect(at(node, 'environment')).toEqual({ ROWCAST_ID: id, ROWCAST_PEER: 'http://hub:9001' });
      expect(at(node, 'volumes')).toEqual([`${id}:/data`]);
    }
    for (const one of [db, hub, a, b]) expect(at(one, 'networks')).toEqual(['group']);
    expect(Object.keys(compose.volumes)).toEqual(['db', 'a', 'b']);
  });

  test('kubernetes-group.yaml asks for what the program answers, and nobody starts it anew for its store', () => {
    expect([deployment.apiVersion, deployment.kind, service.apiVersion, service.kind]).toEqual([
      ...['apps/v1', 'Deployment', 'v1', 'Service'],
    ]);
    const labels = at(deployment, 'spec', 'template', 'metadata', 'labels');
    expect(at(deployment, 'spec', 'selector', 'matchLabels')).toEqual(labels);
    expect(at(service, 'spec', 'selector')).toEqual(labels);
    expect(at(container, 'livenessProbe', 'httpGet')).toEqual({ path: '/livez', port: 'sync' });
    expect(at(container, 'readinessProbe', 'httpGet')).toEqual({ path: '/readyz', port: 'sync' });
    const port = at(container, 'ports', 0, 'containerPort');
    expect([at(service, 'spec', 'ports', 0, 'targetPort'), at(service, 'spec', 'ports', 0, 'port')]).toEqual([
      ...['sync', port],
    ]);
    expect(at(container, 'securityContext')).toMatchObject({ runAsNonRoot: true, allowPrivilegeEscalation: false });
  });

  test('both start the program with settings that it knows', async () => {
    const env = at(container, 'env') as { name: string; value?: unknown }[];
    const named = Object.fromEntries(env.map(({ name, value }) => [name, String(value ?? 'h1')]));
    expect(named.ROWCAST_LISTEN).toBe(`:${at(container, 'ports', 0, 'containerPort')}`);
    const settings = [{ ...at(compose, 'services', 'hub', 'environment') }, { ...named }] as Record<string, string>[];
    for (const given of settings) {
      const [port = 0] = await freePorts(2);
      // Nothing is there: it gets as far as to wait for its store.
      const away = { ROWCAST_STORE: 'postgres://rowcast@127.0.0.1:1/rowcast', ROWCAST_LISTEN: `127.0.0.1:${port}` };
      const child = start([join(root, 'dist/src/cli/main.js'), 'hub'], { ...given, ...away, PATH: process.env.PATH });
      await until('it waits for its store', () => child.output.includes('"store-away"'));
      const live = await fetch(`http://127.0.0.1:${port}${at(container, 'livenessProbe', 'httpGet', 'path')}`);
      const ready = await fetch(`http://127.0.0.1:${port}${at(container, 'readinessProbe', 'httpGet', 'path')}`);
      expect([live.status, ready.status]).toEqual([200, 503]);
      child.process.kill('SIGTERM');
      await child.ended;
    }
  });
});

describe.each([
  ['rowcast.service', 'node.env', 'serve', 'a', ['http://127.0.0.1:9002']],
  ['rowcast-hub.service', 'hub.env', 'hub', 'hub', ['http://127.0.0.1:9001', 'http://127.0.0.1:9002']],
])('%s', (unit, envFile, command, id, peers) => {
  const text = read(join('deploy', unit));
  const [, node = '', program = '', word = ''] = /^ExecStart=(\S+) (\S+) (\S+)$/m.exec(text) ?? [];
  const here = program.replace('/opt/rowcast/node_modules/rowcast/', root);

  test.skipIf(spawnSync('systemd-analyze', ['--version']).status !== 0)('is what systemd expects of a unit', () => {
    const copy = join(scratchFolder(), unit);
    writeFileSync(
      copy,
      text
        .replace(`${node} ${program}`, `${process.execPath} ${here}`)
        .replace('/etc/rowcast/', `${join(root, 'deploy')}/`),
    );
    const { status, stderr, stdout } = spawnSync('systemd-analyze', ['verify', copy], { encoding: 'utf8' });
    expect(`${stdout}${stderr}`).toBe('');
    expect(status).toBe(0);
  });

  test('starts the program with the settings of its file, in a folder that it may write to', async () => {
    expect(word).toBe(command);
    expect(text).toContain(`EnvironmentFile=/etc/rowcast/${envFile}`);
    const settings = variables(read(join('deploy', envFile)));
    expect(settings.ROWCAST_DB).toMatch(new RegExp(`^/var/lib/${/^StateDirectory=(\S+)$/m.exec(text)?.[1]}/`));
    const [port = 0] = await freePorts(1);
    const env = { ...settings, ROWCAST_DB: join(scratchFolder(), 'a.db'), ROWCAST_LISTEN: `127.0.0.1:${port}` };
    const child = start([here, word], { ...env, PATH: process.env.PATH });
    await until('it has started', () => child.output.includes('"started"'));
    const health = (await (await fetch(`http://127.0.0.1:${port}/health`)).json()) as object;
    expect(health).toMatchObject({ ok: true, node_id: id, peers });
    child.process.kill('SIGTERM');
    expect(await child.ended).toBe(0);
  });
});

// biome-ignore lint/suspicious/noExplicitAny: whatever a manifest has
type Yaml = Record<string, any>;

// biome-ignore lint/suspicious/noExplicitAny: see above
function at(from: any, ...path: (string | number)[]): any {
  return path.reduce((value, key) => value?.[key], from);
}

/** By Bun, which can: a text, or several. */
function readYaml(name: string): Yaml {
  const script = 'console.log(JSON.stringify(Bun.YAML.parse(await Bun.file(process.argv[1]).text())))';
  const bun = join(root, 'node_modules/.bin/bun');
  const { stdout, stderr, status } = spawnSync(bun, ['-e', script, join(root, name)], { encoding: 'utf8' });
  if (status !== 0) throw new Error(`${name}: ${stderr}`);
  return JSON.parse(stdout);
}

function start(args: string[], env: NodeJS.ProcessEnv) {
  const child: ChildProcess = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const started = {
    process: child,
    output: '',
    // When all that it has said was read, too.
    ended: new Promise<number | null>((resolve) => child.on('close', (code) => resolve(code))),
  };
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk) => (started.output += chunk));
  cleanUp(() => child.kill('SIGKILL'));
  return started;
}
