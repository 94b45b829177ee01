/**
 * More of test/fuzz/fuzz.deep.test.ts: `npm run fuzz -- <inputs> [seed]`, on Node unless ROWCAST_LANES says otherwise, with a new
 * seed each time. `npm run fuzz -- replay <part> <seed> <index>` is what a failure prints: that input and what led to it.
 */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const args = process.argv.slice(2);
const isReplay = args[0] === 'replay';
const [inputs = '100000', seed = String(1 + Math.floor(Math.random() * 1e9))] = isReplay ? ['1', args[2]] : args;
const whole = isReplay ? [args[2], args[3]] : [inputs, seed];
if (!whole.every((text) => /^\d+$/.test(text ?? '')) || (isReplay && !/^(receive|handler|listener)$/.test(args[1]))) {
  console.log('npm run fuzz -- <inputs> [seed]\nnpm run fuzz -- replay <receive|handler|listener> <seed> <index>');
  process.exit(2);
}
console.log(
  isReplay ? `input ${args[3]} of ${args[1]}, seed ${seed}` : `${inputs} inputs and more over HTTP, seed ${seed}`,
);
const { status } = spawnSync(process.execPath, ['test/run.mjs', 'fuzz/fuzz'], {
  cwd: root,
  stdio: 'inherit',
  env: {
    ...process.env,
    ROWCAST_LANES: process.env.ROWCAST_LANES ?? 'node',
    ROWCAST_FUZZ_SEED: seed,
    ...(isReplay ? { ROWCAST_FUZZ_REPLAY: `${args[1]}:${args[3]}` } : { ROWCAST_FUZZ_INPUTS: inputs }),
  },
});
process.exit(status ?? 1);
