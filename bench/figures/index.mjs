import { capture } from './capture.mjs';
import { careful } from './careful.mjs';
import { compare } from './compare.mjs';
import { drain } from './drain.mjs';
import { endToEnd } from './end-to-end.mjs';
import { fanOut } from './fan-out.mjs';
import { growth } from './growth.mjs';
import { health } from './health.mjs';
import { identity } from './identity.mjs';
import { keys } from './keys.mjs';
import { large } from './large.mjs';
import { latency } from './latency.mjs';
import { million } from './million.mjs';
import { receive } from './receive.mjs';
import { slowLink } from './slow-link.mjs';

/** In the order of the report. */
export const FIGURES = [
  endToEnd,
  drain,
  capture,
  latency,
  million,
  health,
  receive,
  careful,
  identity,
  compare,
  growth,
  slowLink,
  keys,
  fanOut,
  large,
];
