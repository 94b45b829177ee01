/** The URL of a peer: what is refused, and what of it is never shown. */
import { expect, test } from 'vitest';
import { normalisePeer, shownUrl } from '../../src/wire/peer-url.ts';

function refusal(peer: unknown): string {
  try {
    normalisePeer(peer as string);
  } catch (error) {
    return (error as Error).message;
  }
  throw new Error('it was taken');
}

const SECRET = 's3cret';

test.each([
  ['credentials', `http://ann:${SECRET}@10.0.0.2:9001/x`, '"http://10.0.0.2:9001/x" carries credentials'],
  ['a token as the name', `http://${SECRET}@h`, '"http://h" carries credentials'],
  ['credentials, and a port that is none', `http://ann:${SECRET}@h:99999`, '"http://h:99999" is not a URL'],
  ['a password with a slash in it', `http://ann:x/${SECRET}@h`, '"http://h" is not a URL'],
  ['a password with an @ in it', `http://ann:${SECRET}@${SECRET}@h`, '"http://h" carries credentials'],
  ['a password, and no scheme', `ann:${SECRET}@h:9001`, '"h:9001" is not http: or https:'],
  ['one slash', `http:/ann:${SECRET}@h`, '"http:/h" carries credentials'],
  ['spaces before it', `  http://ann:${SECRET}@h`, '"http://h" carries credentials'],
  ['another scheme', `ftp://ann:${SECRET}@h`, '"ftp://h" is not http: or https:'],
  ['a token in the query', `http://h/x?token=${SECRET}`, '"http://h/x" has a query or a fragment'],
  ['a fragment', `http://h/x#${SECRET}`, '"http://h/x" has a query or a fragment'],
  ['a query, and no URL', `http://h:port/?${SECRET}`, '"http://h:port/" is not a URL'],
  ['an object', { uri: `http://ann:${SECRET}@h` }, 'an object is not a string'],
])('%s: what is wrong is said without the secret', (_, peer, message) => {
  const said = refusal(peer);
  expect(said).toContain(`peer ${message}`);
  expect(said).not.toContain(SECRET);
});

test('what is no secret is shown as it was written', () => {
  for (const text of ['', 'a.db', '--', 'why?', 'HTTP://Host:80/@a/', 'http:host/a b', 'http://']) {
    expect(shownUrl(text)).toBe(text);
  }
});
