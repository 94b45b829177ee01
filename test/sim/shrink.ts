/** Makes a failing schedule small: fewer kinds of trouble, then fewer writes, as long as something is still violated. */
import type { DiskPool } from './disk.ts';
import { type Fault, planFor, type Reduction } from './plan.ts';
import { simulate } from './world.ts';

const TRIES_MAX = 250;

export interface Shrunk {
  taken: Reduction;
  violation: string | undefined;
  tail: string[];
  tries: number;
}

export async function shrink(seed: number, pool: DiskPool): Promise<Shrunk> {
  const best: Shrunk = { taken: { without: [], skip: [] }, violation: undefined, tail: [], tries: 0 };
  const stillFails = async (taken: Reduction): Promise<boolean> => {
    if (best.tries >= TRIES_MAX) return false;
    best.tries += 1;
    const { violation, tail } = await simulate(seed, pool, taken);
    if (!violation) return false;
    Object.assign(best, { taken, violation, tail });
    return true;
  };
  if (!(await stillFails(best.taken))) return best;
  const plan = planFor(seed);
  for (const fault of Object.keys(plan.faults) as Fault[]) {
    await stillFails({ ...best.taken, without: [...best.taken.without, fault] });
  }
  for (let size = plan.writes >> 1; size >= 1; size >>= 1) {
    for (let start = 0; start < plan.writes; start += size) {
      const part = Array.from({ length: size }, (_, i) => start + i).filter(
        (index) => index < plan.writes && !best.taken.skip.includes(index),
      );
      if (part.length > 0) await stillFails({ ...best.taken, skip: [...best.taken.skip, ...part] });
    }
  }
  best.taken.skip.sort((a, b) => a - b);
  return best;
}
