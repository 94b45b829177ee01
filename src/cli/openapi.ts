/** `rowcast openapi`: prints the document of all routes. */
import { VERSION } from '../observe/version.ts';
import { openapi as documentOf } from '../openapi/document.ts';
import { type Environment, parseFlags } from './flags.ts';

const HELP = `rowcast openapi: print the OpenAPI document of all routes of a node and of a hub

  rowcast openapi > rowcast.json

A running one serves it to its operator at /_rowcast/openapi.json.
`;

export async function openapi(args: string[], env: Environment): Promise<number> {
  const asked = parseFlags({}, args, env);
  process.stdout.write(asked === 'help' ? HELP : `${JSON.stringify(documentOf(VERSION), null, 2)}\n`);
  return 0;
}
