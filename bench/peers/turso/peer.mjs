import { Unavailable } from '../install.mjs';

/** Named so that it is not missing from the report. */
export const turso = {
  name: 'turso',
  label: 'Turso sync',
  durability: '',
  doesNot: '',
  install() {
    throw new Unavailable(
      process.arch === 'arm64' && process.platform === 'linux'
        ? 'its packages (@tursodatabase/sync, turso) had no binary for linux-arm64 when this was written'
        : 'its sync server is not part of this benchmark; libSQL is measured instead',
    );
  },
};
