/** What mutation testing has shown that no other test would notice. */
import { describe, expect, test } from 'vitest';
import { judge } from '../src/verdict.ts';

describe('the verdict', () => {
  test.each([
    [199, 'unreachable'],
    [200, 'acked'],
    [299, 'acked'],
    [300, 'unreachable'],
    [399, 'unreachable'],
    [400, 'refused'],
    [413, 'too-large'],
    [499, 'refused'],
    [500, 'unreachable'],
    [599, 'unreachable'],
  ])('of HTTP %i is %s, whatever the body says', (status, kind) => {
    expect(judge({ status, body: '{"ack":5}' }, 5).kind).toBe(kind);
  });

  test.each([
    ['', 'HTTP 503'],
    [' \n\t ', 'HTTP 503'],
    ['  Service\n\n\t unavailable  ', 'HTTP 503: Service unavailable'],
    ['x'.repeat(1_000), `HTTP 503: ${'x'.repeat(200)}`],
  ])('says what came, in one line and not too long: %j', (body, reason) => {
    expect(judge({ status: 503, body }, 5)).toEqual({ kind: 'unreachable', reason });
    const refused = reason.replace('503', '422');
    expect(judge({ status: 422, body }, 5)).toEqual({ kind: 'refused', reason: refused });
    const noJson = reason.replace('503', '200 without JSON');
    expect(judge({ status: 200, body }, 5)).toEqual({ kind: 'refused', reason: noJson });
  });

  test.each([
    ['null', 'ack undefined instead of 5'],
    ['7', 'ack undefined instead of 5'],
    ['{"ack":null}', 'ack null instead of 5'],
    ['{"ack":"05"}', 'ack "05" instead of 5'],
  ])('says which acknowledgement came instead: %s', (body, reason) => {
    expect(judge({ status: 200, body }, 5)).toEqual({ kind: 'refused', reason });
  });
});
