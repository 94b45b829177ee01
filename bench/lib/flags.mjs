/** The flags of `npm run bench`, checked one by one. */
import { parseArgs } from 'node:util';
import { RUNTIMES } from './runtimes.mjs';

export const USAGE = `usage: npm run bench -- [flags]

  --quick              smaller counts, three repetitions: about a minute
  --only <names>       only these figures, separated by commas; with --peers, these systems beside Rowcast
  --runtime <name>     ${RUNTIMES.join(', ')}; several separated by commas. Default node
  --repetitions <n>    default 5 (quick 3); with --against 9 (quick 5)
  --against <ref>      compare this tree with another commit, interleaved; fails on a slowdown beyond noise.
                       Unless quick, instructions are counted as well, where perf or valgrind can
  --peers              the same work on what one would pick instead, interleaved with Rowcast
  --vary <o>=<a>,<b>   in slow-link, the values of an option of attach to compare, as JSON
  --out <folder>       where the report goes. Default bench/results
  --help               this text

figures: `;

export class UsageError extends Error {}

export function readFlags(argv, figures, systems) {
  let values;
  try {
    ({ values } = parseArgs({
      args: argv,
      options: {
        quick: { type: 'boolean', default: false },
        only: { type: 'string' },
        runtime: { type: 'string', default: 'node' },
        repetitions: { type: 'string' },
        against: { type: 'string' },
        peers: { type: 'boolean', default: false },
        vary: { type: 'string' },
        out: { type: 'string' },
        help: { type: 'boolean', default: false },
      },
    }));
  } catch (error) {
    throw new UsageError(error.message);
  }
  if (values.peers && values.against !== undefined)
    throw new UsageError('--peers and --against are two different runs');
  const standard = values.against !== undefined ? (values.quick ? 5 : 9) : values.quick ? 3 : 5;
  // With fewer than five, all of them on one side of 1 is still likely to be chance.
  const fewest = values.against !== undefined ? 5 : 1;
  return {
    ...values,
    only: list('--only', values.only, values.peers ? systems : figures),
    runtimes: list('--runtime', values.runtime, RUNTIMES),
    vary: varied(values.vary),
    repetitions: integer('--repetitions', values.repetitions ?? String(standard), fewest, 100),
  };
}

function list(flag, text, known) {
  if (text === undefined) return undefined;
  const names = text.split(',');
  for (const name of names) {
    if (!known.includes(name)) throw new UsageError(`${flag} ${name}: there is only ${known.join(', ')}`);
  }
  return names;
}

/** `compression=true,false` */
function varied(text) {
  if (text === undefined) return undefined;
  const [, option, values] = /^(\w+)=(.+)$/.exec(text) ?? [];
  if (option === undefined) throw new UsageError(`--vary must be <option>=<value>,<value>, not ${text}`);
  try {
    return { option, values: JSON.parse(`[${values}]`) };
  } catch {
    throw new UsageError(`--vary: ${values} are not JSON values separated by commas`);
  }
}

function integer(flag, text, min, max) {
  if (!/^\d+$/.test(text) || Number(text) < min || Number(text) > max) {
    throw new UsageError(`${flag} must be an integer from ${min} to ${max}, not ${text}`);
  }
  return Number(text);
}
