import base from './vitest.config.ts';
export default { ...base, test: { ...base.test, setupFiles: ['/tmp/cf/cpu-setup.mjs'] } };
