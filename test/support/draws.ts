/**
 * How many inputs a test draws that draws any: a quarter of them in `npm test`, all in `npm run test:deep`, where such files
 * run once more (`DRAWN` of test/lanes/lanes.mjs).
 */
export function draws(all: number): number {
  return process.env.ROWCAST_DRAWS === 'all' ? all : Math.ceil(all / 4);
}
