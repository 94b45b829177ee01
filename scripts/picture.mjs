/**
 * `npm run picture`: plays the demo in a pseudo terminal, presses its keys, and writes what the terminal showed to
 * docs/pictures/demo.svg. Nothing in the picture is drawn by hand, except the line at its foot that names the key.
 *
 * The pseudo terminal is that of script(1) from util-linux; everything else is here.
 */
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Terminal } from './terminal.mjs';
import { filmOf } from './terminal-film.mjs';

const SIZE = { columns: 96, rows: 30 };
const TITLE = 'Three Rowcast nodes in a terminal: written to, killed, cut apart, equal again';
const STEP_MS = 30_000;

/** What is pressed, what the film says of it, what the terminal must show before it goes on, and how long one looks at it. */
const SCENES = [
  { caption: 'npm start', until: /all three are running/, lookMs: 1_200 },
  { key: 'w', caption: 'w: ten rows on each node', until: /(10 rows on [\s\S]*){3}/, lookMs: 2_000 },
  { key: 'b', caption: 'b: kill -9 node b', until: /b is gone/, lookMs: 1_000 },
  { key: '2', caption: '2: cut the link between a and c', until: /link a-c is cut/, lookMs: 1_000 },
  {
    key: 'w',
    caption: 'w: ten rows on each of the two that are left',
    until: /(the link is healed[\s\S]*){2}/,
    lookMs: 2_500,
  },
  { key: '2', caption: '2: heal the link', until: /link a-c is healed/, lookMs: 2_000 },
  { key: 'b', caption: 'b: bring b back', until: /b is back as pid/, lookMs: 2_500 },
  { key: 'v', caption: 'v: compare every row of the three files', until: /all three files are equal/, lookMs: 1_000 },
];

const root = fileURLToPath(new URL('..', import.meta.url));

if (spawnSync('script', ['--version']).status !== 0) {
  console.error('script(1) of util-linux is needed for a pseudo terminal: on Debian, apt-get install bsdutils');
  process.exit(1);
}
const frames = await record();
writeFileSync(join(root, 'docs', 'pictures', 'demo.svg'), filmOf(frames, { ...SIZE, title: TITLE }));
console.log(`docs/pictures/demo.svg: ${Math.round(frames.at(-1).at / 1_000)} seconds of the demo`);

/** Resolves to what the screen showed, oldest first: `{ at, lines, caption }`. */
async function record() {
  const folder = mkdtempSync(join(tmpdir(), 'rowcast-'));
  const terminal = new Terminal(SIZE);
  const demo = `stty rows ${SIZE.rows} cols ${SIZE.columns} && exec '${process.execPath}' dist/src/cli/main.js demo --dir '${folder}'`;
  const child = spawn('script', ['-qefc', demo, '/dev/null'], { cwd: root, stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = new Promise((resolve) => child.on('exit', resolve));
  const began = Date.now();
  const frames = [];
  let caption = '';
  const look = () => {
    const lines = terminal.lines();
    if (lines.length > 0) frames.push({ at: Date.now() - began, lines, caption });
  };
  child.stdout.setEncoding('utf8').on('data', (text) => {
    terminal.write(text);
    if (caption) look();
  });
  try {
    for (const scene of SCENES) {
      caption = scene.caption;
      if (scene.key) child.stdin.write(scene.key);
      await shown(terminal, child, scene);
      await pause(scene.lookMs);
    }
    look();
    // What follows is the end of the demo, not a part of the film.
    caption = '';
    child.stdin.write('q');
    await ended;
    return frames;
  } finally {
    if (child.exitCode === null) child.kill('SIGTERM');
    await ended;
    rmSync(folder, { recursive: true, force: true });
  }
}

async function shown(terminal, child, { caption, until }) {
  for (const end = Date.now() + STEP_MS; !until.test(terminal.text()); await pause(20)) {
    if (child.exitCode !== null) throw new Error(`the demo ended at "${caption}"`);
    if (Date.now() > end) throw new Error(`"${caption}": ${until} did not come:\n${terminal.text()}`);
  }
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
