/** Loaded by vitest before each test file; a module that files share is loaded once for several of them. */
import { afterEach } from 'vitest';
import { cleanUpAll } from './clean-up.ts';

afterEach(cleanUpAll);
