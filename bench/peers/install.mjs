/** Brings a system onto this machine without touching it: packages of npm and of Debian, each in a folder of their own. */
import { existsSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { run } from '../lib/processes.mjs';
import { ROOT } from '../lib/runtimes.mjs';

/** Cannot be had here; the message says why, and stands in the report. */
export class Unavailable extends Error {}

export function folderOf(name) {
  return fileURLToPath(new URL(`${name}/`, import.meta.url));
}

/** What the folder's lock file says, unless it is there already. */
export async function installPackages(name) {
  const folder = folderOf(name);
  const installed = join(folder, 'node_modules', '.package-lock.json');
  const lock = join(folder, 'package-lock.json');
  if (existsSync(installed) && statSync(installed).mtimeMs >= statSync(lock).mtimeMs) return;
  try {
    await run('npm', ['ci', '--no-audit', '--no-fund', '--ignore-scripts', '--prefix', folder]);
  } catch (error) {
    throw new Unavailable(`npm ci failed: ${error.message.split('\n').at(-1)}`);
  }
}

/**
 * A Debian package and whatever it needs that is not here, downloaded and unpacked where tools keep their caches: nothing
 * is installed, no service is started, and no administrator is needed. Returns the environment to run it with.
 */
export async function unpackDebian(name, packageName) {
  const folder = join(ROOT, 'node_modules', '.cache', 'rowcast-bench', name);
  if (!existsSync(folder)) {
    const partial = `${folder}.part`;
    try {
      const plan = await run('apt-get', ['install', '--dry-run', '--yes', '--no-install-recommends', packageName]);
      const needed = [...plan.matchAll(/^Inst (\S+)/gm)].map(([, each]) => each);
      if (needed.length === 0) throw new Error(`${packageName} is installed, but its programs were not found`);
      mkdirSync(partial, { recursive: true });
      await run('apt-get', ['download', ...needed], { cwd: partial });
      for (const file of readdirSync(partial).filter((each) => each.endsWith('.deb'))) {
        await run('dpkg', ['-x', join(partial, file), folder]);
      }
    } catch (error) {
      await run('rm', ['-rf', folder]);
      throw new Unavailable(`Debian's ${packageName} could not be unpacked: ${error.message.split('\n').at(-1)}`);
    } finally {
      await run('rm', ['-rf', partial]);
    }
  }
  const libraries = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.so(\.\d+)*$/.test(entry.name))
    .map((entry) => entry.parentPath);
  return { folder, env: { ...process.env, LD_LIBRARY_PATH: [...new Set(libraries)].join(':') } };
}

/** Servers of databases refuse to run as root; then they run as nobody, in folders that are theirs. */
export function unprivileged() {
  return process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};
}
