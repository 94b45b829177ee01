#!/usr/bin/env node
/** The `rowcast-hub` program: the same as `rowcast hub`. */
import { hub } from './hub.ts';
import { report } from './program.ts';

process.exit(await hub(process.argv.slice(2), process.env).catch((error) => report('rowcast-hub', error)));
