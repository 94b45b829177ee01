/**
 * The public API as text: what each entry of the package exports, and every type that can be reached from there, read from
 * the declarations that the compiler emits. Comments are left out: they may change without anybody's code breaking.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { root } from '../support/build.ts';

/** A file of declarations, taken apart. */
interface Module {
  /** By name: the text, and whether the file exports it. */
  declared: Map<string, string>;
  /** Local name -> where it comes from and what it is called there; re-exports included. */
  from: Map<string, { file: string; name: string }>;
  exported: Set<string>;
}

/** Emits the declarations of src/ into `folder` and describes every entry in the manifest's `exports`. */
export function apiReport(folder: string): string {
  const options = [
    '--noCheck',
    '--emitDeclarationOnly',
    '--declarationMap',
    'false',
    '--sourceMap',
    'false',
    '--outDir',
    folder,
  ];
  execFileSync(join(root, 'node_modules', '.bin', 'tsc'), ['-p', join(root, 'tsconfig.build.json'), ...options]);
  const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    exports: Record<string, string | { types: string }>;
  };
  const sections = Object.entries(exports).flatMap(([entry, target]) =>
    typeof target === 'string' ? [] : [describeEntry(folder, entry.replace('.', 'rowcast'), target.types)],
  );
  return sections.join('\n');
}

function describeEntry(folder: string, entry: string, types: string): string {
  const modules = new Map<string, Module>();
  const load = (file: string): Module => {
    const known = modules.get(file) ?? parse(readFileSync(join(folder, file), 'utf8'), file);
    modules.set(file, known);
    return known;
  };
  const first = types.replace('./dist/', '');
  const names = [...load(first).exported].sort();
  const reached = new Map<string, string>();
  const visit = (file: string, name: string): void => {
    const module = load(file);
    const elsewhere = module.from.get(name);
    if (elsewhere) visit(elsewhere.file, elsewhere.name);
    const text = module.declared.get(name);
    if (text === undefined || reached.has(name)) return;
    reached.set(name, text);
    for (const [word] of text.matchAll(/[A-Za-z_$][\w$]*/g)) {
      if (word !== name && (module.declared.has(word) || module.from.has(word))) visit(file, word);
    }
  };
  for (const name of names) visit(first, name);
  const missing = names.filter((name) => !reached.has(name));
  if (missing.length > 0) throw new Error(`${entry}: no declaration of ${missing} was found`);
  const inner = [...reached.keys()].filter((name) => !names.includes(name)).sort();
  return [
    `==== ${entry} exports ${names.join(', ')}\n`,
    ...names.map((name) => `${reached.get(name)}\n`),
    ...(inner.length > 0 ? [`---- reached from there, not exported by ${entry}\n`] : []),
    ...inner.map((name) => `${reached.get(name)}\n`),
  ].join('\n');
}

/** The compiler writes each declaration from the first column on, and what belongs to it further in. */
function parse(text: string, file: string): Module {
  const module: Module = { declared: new Map(), from: new Map(), exported: new Set() };
  const statements = text
    .replace(/\/\*[\s\S]*?\*\//g, '')
    .replace(/^\/\/.*$/gm, '')
    .replace(/^\s*\n/gm, '')
    .split(/\n(?=[^\s})\]|])/);
  for (const statement of statements) read(statement.trimEnd(), module, file);
  return module;
}

function read(statement: string, module: Module, file: string): void {
  const listed = /^(import|export)\s+(?:type\s+)?\{([^}]*)\}(?:\s+from\s+'([^']+)')?;$/.exec(statement);
  if (listed) {
    const [, verb, names = '', from] = listed;
    for (const item of names.split(',')) {
      const [there = '', here = there] = item
        .replace(/\btype\s/, '')
        .trim()
        .split(/\s+as\s+/);
      if (there === '') continue;
      if (from?.startsWith('.')) module.from.set(here, { file: declarationsOf(file, from), name: there });
      if (verb === 'export') module.exported.add(here);
    }
    return;
  }
  const named = /^(export )?(?:declare )?(?:abstract )?(?:interface|type|class|function|const) ([\w$]+)/.exec(
    statement,
  );
  if (!named) return;
  const [, exported, name = ''] = named;
  module.declared.set(name, statement.replace(/^export /, ''));
  if (exported) module.exported.add(name);
}

function declarationsOf(file: string, specifier: string): string {
  return posix.join(posix.dirname(file), specifier).replace(/\.(ts|js)$/, '.d.ts');
}
