import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { folderOf, installPackages } from '../install.mjs';
import { Pair } from '../pair.mjs';

export const pouchdb = {
  name: 'pouchdb',
  label: 'PouchDB to express-pouchdb',
  durability: 'LevelDB without flushing, on both sides: a power cut may take acknowledged rows',
  doesNot: 'SQL; transactions; flush what it acknowledges',
  async install() {
    await installPackages('pouchdb');
    const { dependencies } = JSON.parse(readFileSync(join(folderOf('pouchdb'), 'package.json'), 'utf8'));
    return `PouchDB ${dependencies['pouchdb-core']}, express-pouchdb ${dependencies['express-pouchdb']}`;
  },
  start(folder) {
    const [a, b] = ['a', 'b'].map((name) => join(folder, name));
    for (const path of [a, b]) mkdirSync(path);
    return Pair.start({
      program: fileURLToPath(new URL('client.mjs', import.meta.url)),
      a: { path: a },
      b: { path: b },
    });
  },
};
