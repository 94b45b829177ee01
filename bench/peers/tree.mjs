/** CPU time and memory of a process and all its descendants, as the kernel counts them. Linux only. */
import { readdirSync, readFileSync } from 'node:fs';

/** Linux counts a process's time in hundredths of a second. */
const TICKS_PER_SECOND = 100;

/** Seconds of all processes below `pids`, those included that have ended and been waited for. */
export function cpuOf(pids) {
  const ticks = family(pids).reduce(
    (sum, { fields }) => sum + fields.slice(11, 15).reduce((a, b) => a + Number(b), 0),
    0,
  );
  return ticks / TICKS_PER_SECOND;
}

/** MiB of all processes below `pids`. A page that several share is counted once: a server's shared buffers, for one. */
export function memoryOf(pids) {
  return family(pids).reduce((sum, { pid }) => sum + memoryOfOne(pid), 0) / 1_024;
}

/** Looks at the memory of several groups again and again, and keeps the most of each. */
export class MemoryWatch {
  #peaks = {};
  #timer;

  constructor(groups) {
    const look = () => {
      for (const [name, pids] of Object.entries(groups)) {
        this.#peaks[name] = Math.max(this.#peaks[name] ?? 0, memoryOf(pids));
      }
    };
    look();
    this.#timer = setInterval(look, 100);
  }

  stop() {
    clearInterval(this.#timer);
    return this.#peaks;
  }
}

function family(pids) {
  const all = new Map();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      // The name of the program is in brackets and may hold anything.
      const fields = readFileSync(`/proc/${name}/stat`, 'utf8')
        .replace(/^.*\) /s, '')
        .split(' ');
      all.set(Number(name), { pid: Number(name), parent: Number(fields[1]), fields });
    } catch {
      // It has ended meanwhile.
    }
  }
  const belongs = ({ pid, parent }) => pids.includes(pid) || (all.has(parent) && belongs(all.get(parent)));
  return [...all.values()].filter(belongs);
}

function memoryOfOne(pid) {
  try {
    return Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))?.[1] ?? 0);
  } catch {
    return 0;
  }
}
