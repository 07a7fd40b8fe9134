// docs/: a line of a block "sh run": `$ command   # exit N   shows TEXT`. Exit 0 unless it says otherwise; TEXT must be in stdout.
// README.md: a block "console" shows commands and what they print, shortened by "…": every piece between must be in stdout, in this order.
// Prints "N passed, N failed".
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { binary, root } from '../cli/harness.mjs';

let passed = 0, failed = 0;
// A folder from which the commands find ./amk and files of the project, and a shell there.
function place() {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'amk-docs-'));
  fs.symlinkSync(binary, path.join(dir, 'amk'));
  fs.symlinkSync(path.join(root, 'tests'), path.join(dir, 'tests'));
  const env = { PATH: process.env.PATH, HOME: dir };
  return {
    run: (command) => spawnSync('bash', ['-c', command], { cwd: dir, env, encoding: 'utf8', timeout: 120_000, maxBuffer: 64 << 20 }),
    leave: () => {
      spawnSync(binary, ['--workspace', path.join(dir, 'workspace'), 'serve', '--stop', '--force'], { env, timeout: 20_000 });
      fs.rmSync(dir, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
    },
  };
}
for (const page of fs.readdirSync(path.join(root, 'docs')).filter((f) => f.endsWith('.md')).sort()) {
  const text = fs.readFileSync(path.join(root, 'docs', page), 'utf8');
  const lines = [...text.matchAll(/```sh run\n([\s\S]*?)```/g)].flatMap((m) => m[1].split('\n')).filter((l) => l.startsWith('$ '));
  if (!lines.length) continue;
  const { run, leave } = place();
  for (const line of lines) {
    const [, command, note = ''] = /^\$ (.*?)(?:\s+# (.*))?$/.exec(line);
    const exit = Number(/exit (\d+)/.exec(note)?.[1] ?? 0);
    const shows = /shows (.*)$/.exec(note)?.[1]?.trim();
    const r = run(command);
    if (r.status === exit && (!shows || r.stdout.includes(shows))) { passed++; continue; }
    failed++;
    console.log(`FAILED docs/${page}: ${command}\n  exit ${r.status} (wanted ${exit}), stdout: ${r.stdout.slice(0, 300)} stderr: ${r.stderr.slice(-200)}${shows ? `\n  wanted in it: ${shows}` : ''}`);
  }
  leave();
}
const shown = [...fs.readFileSync(path.join(root, 'README.md'), 'utf8').matchAll(/```console\n([\s\S]*?)```/g)].flatMap((m) => m[1].split(/^\$ /m).slice(1));
const { run, leave } = place();
for (const example of shown) {
  const [command, ...lines] = example.trimEnd().split('\n');
  const r = run(command);
  // A line that begins with a blank goes on with the one before.
  const pieces = lines.join('\n').replaceAll('\n ', '').split(/…|\n/).filter((p) => !/^[,{}]*$/.test(p));
  let at = 0;
  const missing = pieces.find((p) => {
    const found = r.stdout.indexOf(p, at);
    at = found + p.length;
    return found < 0;
  });
  if (r.status === 0 && missing === undefined) { passed++; continue; }
  failed++;
  console.log(`FAILED README.md: ${command}\n  exit ${r.status}, wanted in stdout, in its place: ${missing}\n  stdout: ${r.stdout.slice(0, 2000)} stderr: ${r.stderr.slice(-200)}`);
}
leave();
if (shown.length < 5) { failed++; console.log(`FAILED README.md: ${shown.length} examples`); }
// Commands that are only mentioned (many need a GPU or hours) must at least exist: the verb, and every option of it.
const help = (words) => spawnSync(binary, [...words, '--help'], { encoding: 'utf8', timeout: 20_000 });
const known = new Map();
for (const page of ['../README.md', '../AGENTS.md', ...fs.readdirSync(path.join(root, 'docs')).filter((f) => f.endsWith('.md'))]) {
  const text = fs.readFileSync(path.join(root, 'docs', page), 'utf8');
  for (const [, command] of text.matchAll(/(?:`|^\$ )(?:\.\/)?amk ([a-z][^`\n|…]*)/gm)) {
    const words = command.split(' # ')[0].split(/\s+/).filter(Boolean);
    const verb = ['orchestrate', 'results'].includes(words[0]) && /^[a-z]+$/.test(words[1] ?? '') ? words.slice(0, 2) : words.slice(0, 1);
    const key = verb.join(' ');
    if (!known.has(key)) known.set(key, help(verb));
    const told = known.get(key);
    const options = words.filter((w) => /^--[a-z]/.test(w)).map((w) => w.replace(/[^a-z-].*$/, ''));
    const global = ['--workspace', '--no-daemon', '--pretty', '--version', '--help'];
    const missing = told.status === 0 ? options.filter((o) => !global.includes(o) && !new RegExp(`${o}\\b`).test(told.stdout)) : ['the verb'];
    if (missing.length === 0) { passed++; continue; }
    failed++;
    console.log(`FAILED docs/${page}: amk ${command.slice(0, 120)}: ${missing.join(', ')} does not exist`);
  }
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed || !passed ? 1 : 0);
