/** A removed or changed export shows in the diff of one file. */
import { expect, test } from 'vitest';
import { scratchFolder } from '../support/nodes.ts';
import { apiReport } from './api-report.ts';

test('the public API is as test/golden/api.d.ts.txt says', async () => {
  const report = apiReport(scratchFolder());
  expect(report).toContain('==== rowcast exports ');
  await expect(
    report,
    'The public API has changed. If that is meant, say so in CHANGELOG.md and run: npx vitest run test/house/api -u',
  ).toMatchFileSnapshot('../golden/api.d.ts.txt');
});
