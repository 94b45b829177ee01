/**
 * The last step of `npm run build`: the programs `rowcast` and `rowcast-hub` become a few files each, instead of 264 modules.
 * The modules stay for whoever imports the library. With an argument: of what is compiled in that folder.
 */
import { chmodSync, cpSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { bundle } from './bundle.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const sources = join(process.argv[2] ?? join(root, 'dist'), 'src');
const programs = ['main', 'rowcast-hub'].map((name) => join(sources, 'cli', `${name}.js`));

// Their names say what is in them, so those of an earlier build would stay.
rmSync(join(sources, 'program'), { recursive: true, force: true });
await bundle(programs, sources, sources, { allowOverwrite: true, sourcemap: true, sourcesContent: false });
for (const program of programs) chmodSync(program, 0o755);
cpSync(join(root, 'src', 'console'), join(sources, 'console'), { recursive: true });
