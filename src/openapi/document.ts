/** All routes of a node and of a hub in one OpenAPI document. A test holds it against running programs. */
import { ADMIN_ROUTES } from './admin-routes.ts';
import { DATA_ROUTES } from './data-routes.ts';
import { described, type Operation } from './operation.ts';
import { SCHEMAS } from './schemas.ts';

export function openapi(version: string): object {
  return {
    openapi: '3.1.0',
    info: {
      title: 'Rowcast',
      version,
      description:
        'Tag "data": the port of -listen. Tag "admin": the socket beside the database file, and -admin-listen. ' +
        'x-served-by says whether a node answers, a hub, or both.',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    tags: [{ name: 'data' }, { name: 'admin' }],
    paths: { ...pathsOf(DATA_ROUTES, 'data'), ...pathsOf(ADMIN_ROUTES, 'admin') },
    components: {
      schemas: SCHEMAS,
      securitySchemes: {
        token: { type: 'http', scheme: 'bearer', description: 'of -tokens-file, or of -admin-token-file' },
      },
    },
    security: [{}, { token: [] }],
  };
}

function pathsOf(routes: Record<string, Record<string, Operation>>, tag: string): object {
  return Object.fromEntries(
    Object.entries(routes).map(([path, operations]) => [
      path,
      Object.fromEntries(Object.entries(operations).map(([method, operation]) => [method, described(operation, tag)])),
    ]),
  );
}
