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

test.each([
  ['http://127.0.0', '127.0.0', '127.0.0.0'],
  ['http://10.0:9001', '10.0', '10.0.0.0'],
  ['http://10', '10', '0.0.0.10'],
  ['http://127.1:9001', '127.1', '127.0.0.1'],
  ['http://2130706433', '2130706433', '127.0.0.1'],
  ['https://0x7f.1/x', '0x7f.1', '127.0.0.1'],
  ['http://10.0.0.010:9001', '10.0.0.010', '10.0.0.8'],
  ['http:127.0.0.', '127.0.0.', '127.0.0.0'],
])('%s is no four numbers, and is not completed', (peer, host, address) => {
  expect(refusal(peer)).toContain(
    `has the host "${host}", which would be the address ${address} (write the four numbers`,
  );
});

test('an address in four numbers, and names that have numbers, are what they are', () => {
  const urls = [
    'http://10.0.0.2:9001',
    'http://127.0.0.1',
    'https://10.0.0.2/a',
    'http://n1.10.test',
    'http://[::1]:9001',
  ];
  for (const url of urls) expect(normalisePeer(url)).toBe(url);
  expect(normalisePeer(' HTTP://10.0.0.2:80/ ')).toBe('http://10.0.0.2');
  expect(normalisePeer('http:\\\\10.0.0.2\\a')).toBe('http://10.0.0.2/a');
});
