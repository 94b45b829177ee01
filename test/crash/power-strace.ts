/** Where strace is found, or why it cannot be used. */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

/** What keeps strace from being used here, if anything. CI installs it where it may. */
export function missingStrace(): string | undefined {
  if (process.platform !== 'linux') return `strace runs on Linux, not on ${process.platform}`;
  const find = (): boolean => (process.env.PATH ?? '').split(':').some((folder) => existsSync(join(folder, 'strace')));
  if (!find() && process.env.CI && process.getuid?.() === 0) {
    try {
      execFileSync('apt-get', ['install', '-y', '--no-install-recommends', 'strace'], { stdio: 'ignore' });
    } catch {
      // Said below.
    }
  }
  if (!find()) return 'strace is not installed: apt-get install strace';
  try {
    execFileSync('strace', ['-o', '/dev/null', 'true'], { stdio: 'ignore' });
  } catch {
    return 'strace is installed but may not trace here: the container needs the capability SYS_PTRACE';
  }
  return undefined;
}

/** A reader without strace is told what is missing; CI fails. */
export function giveUp(missing: string, skip: (note?: string) => void): void {
  if (process.env.CI && process.platform === 'linux') throw new Error(missing);
  skip(missing);
}
