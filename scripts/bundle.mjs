/**
 * Makes a few files of many modules: to find, open and compile two hundred of them takes longer than all else that a program does
 * at its start. Each entry keeps its name and its exports; what several of them share lies in `program`, as deep as the modules
 * of src/, because some find their files by where they are themselves.
 */
import { build } from 'esbuild';

/** `options`: what else esbuild is told. */
export function bundle(entryPoints, from, to, options = {}) {
  return build({
    entryPoints,
    outbase: from,
    outdir: to,
    chunkNames: 'program/[name]-[hash]',
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node20.19',
    // Bindings are found at run time. The demo starts other files of its own.
    packages: 'external',
    external: ['*/demo/main.js', '*/demo/main.ts'],
    logLevel: 'warning',
    ...options,
  });
}
