/** Every route that the sources know is in the OpenAPI document, and the document has no other. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { openapi } from '../../src/openapi/document.ts';
import { root } from '../support/build.ts';

interface Document {
  paths: Record<string, Record<string, { tags: string[]; 'x-served-by': string[]; responses: object }>>;
  components: { schemas: Record<string, object> };
}

const document = openapi('1.2.3') as Document;
const source = (folder: string): string =>
  readdirSync(join(root, 'src', folder))
    .filter((name) => name.endsWith('.ts'))
    .map((name) => readFileSync(join(root, 'src', folder, name), 'utf8'))
    .join('\n');

test('the paths of the data port are those that the sources spell', () => {
  const texts = [source('http'), source('cli/items'), readFileSync(join(root, 'src/wire/protocol.ts'), 'utf8')];
  const spelt = texts.flatMap((text) => [...text.matchAll(/_PATH = '(\/[^']+)'|BASE = '(\/[^']+)'/g)]);
  const paths = spelt.map(([, path, base]) => path ?? base);
  expect(paths.length).toBeGreaterThan(7);
  const documented = Object.keys(document.paths).filter((path) => tagOf(path) === 'data');
  const below = ['/api/items/batch', '/api/items/{id}'];
  expect(documented.sort()).toEqual([...paths, ...below].sort());
});

test('so are those of the operator', () => {
  const answer = source('admin');
  const routes = [...answer.matchAll(/'(GET|POST) ([a-z-]+)':/g)].map(([, method, name]) => `${method} ${name}`);
  expect(routes.length).toBeGreaterThan(6);
  const documented = Object.entries(document.paths)
    .filter(([path]) => path.startsWith('/_rowcast/api/'))
    .flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path.split('/')[3]}`),
    );
  expect([...new Set(documented)].sort()).toEqual([...new Set(routes)].sort());
  const verbs = [...answer.matchAll(/^ {8}(\w+): members\.\w+,$/gm)].map(([, verb]) => `/_rowcast/api/peers/${verb}`);
  const peers = Object.keys(document.paths).filter((path) => path.startsWith('/_rowcast/api/peers/'));
  expect(peers.sort()).toEqual(verbs.sort());
});

test('every reference leads somewhere, and every shape is used', () => {
  const used = [...JSON.stringify(document).matchAll(/#\/components\/schemas\/(\w+)/g)].map(([, name]) => name);
  expect([...new Set(used)].sort()).toEqual(Object.keys(document.components.schemas).sort());
});

function tagOf(path: string): string | undefined {
  return Object.values(document.paths[path] ?? {})[0]?.tags[0];
}
