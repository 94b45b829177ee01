/**
 * Loaded by vitest before each test file. What is drawn is the same in every run, so that a red run is red again for whoever
 * looks into it; ROWCAST_SEED draws otherwise (the nightly workflow does).
 */
import fc from 'fast-check';

export const SEED = Number(process.env.ROWCAST_SEED ?? 20_261_116);

fc.configureGlobal({ seed: SEED });
