/**
 * A node is backed up, tells others what it writes after that and hears from nobody, and is put back: whoever was told has
 * what it lacks, and nothing but what it has told says so. Or one of those who were told is not to be reached when it is
 * back, and gets to know of it only when it has told others as much as before.
 */
import type { Machine, Surroundings } from './machine.ts';
import type { Random } from './random.ts';

export interface Relapse {
  world: Surroundings;
  random: Random;
  node: Machine;
  others: Machine[];
  /** The application writes something there. */
  write(node: Machine): void;
  putBack(image: Uint8Array): void;
}

/** With time for a loop that sends at once, and for an answer. */
const TOLD_MS = 100;
const WRITES = 3;

export function relapse({ world, random, node, others, write, putBack }: Relapse): void {
  const { network, timeline, plan } = world;
  if (!node.process || !node.ready || node.disk.inTransaction) return;
  const told = random.pick(others);
  const isLast = others.length > 1 && random.chance(0.5);
  const image = node.disk.image();
  world.trace(`${node.name} is backed up, and hears from nobody`);
  const deaf = (from: Machine[]): string[] => from.map(({ name }) => `${name} ${node.name}`);
  for (const link of deaf(others)) network.cut.add(link);
  const after = (ms: number, act: () => void): void => {
    timeline.in(ms, () => {
      if (network.troubled) act();
    });
  };
  const some = (at: number): void => {
    for (let i = 0; i < WRITES; i++) {
      after(at + i * 10, () => {
        write(node);
        node.process?.nudge();
      });
    }
  };
  const step = TOLD_MS + plan.batchMs;
  some(0);
  after(step, () => {
    putBack(image);
    for (const link of deaf(others)) network.cut.delete(link);
    if (!isLast) return;
    for (const link of [`${node.name} ${told.name}`, ...deaf([told])]) network.cut.add(link);
  });
  if (!isLast) return;
  some(2 * step);
  some(2 * step + 40);
  // What it says arrives before it hears what is remembered of it.
  after(3 * step, () => network.cut.delete(`${node.name} ${told.name}`));
  after(4 * step, () => {
    for (const link of deaf([told])) network.cut.delete(link);
  });
}
