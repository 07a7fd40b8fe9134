// A tiny test harness: named tests, each with its own workspace; prints failures and the closing line "N passed, N failed".
import { spawn, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { endProcessesOf } from '../../support/leftovers.mjs';

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../..');
export const binary = process.env.AMK_BINARY ?? path.join(process.env.AMK_BUILD ?? path.join(root, 'build/release'), 'server/amk');
// Under ThreadSanitizer: what is bounded by time comes to less, and its shadow is beyond any limit of memory.
export const sanitized = (process.env.AMK_BUILD ?? '').includes('tsan');
export const patience = sanitized ? 20 : 1;
export const fixtures = path.join(root, 'tests/fixtures/hf');

const tests = [];
export const test = (name, body) => tests.push({ name, body });

export class Workspace {
  constructor() { this.dir = fs.mkdtempSync(path.join(os.tmpdir(), 'amk-e2e-')); this.ws = path.join(this.dir, 'ws'); }
  env(extra = {}) { return { PATH: process.env.PATH, HOME: this.dir, AMK_WORKSPACE: this.ws, ...extra }; }
  // Runs one verb to its end: {code, out (text), json, err}.
  amk(args, { input, env, timeout = 120000 * patience } = {}) {
    const r = spawnSync(binary, args, { input: input ?? '', env: this.env(env), cwd: this.dir, encoding: 'utf8', timeout, maxBuffer: 64 << 20 });
    let json;
    try { json = JSON.parse(r.stdout); } catch { json = undefined; }
    return { code: r.status, signal: r.signal, out: r.stdout, json, err: r.stderr };
  }
  start(args) { return spawn(binary, args, { env: this.env(), cwd: this.dir, stdio: ['pipe', 'pipe', 'pipe'] }); }
  // The lock file keeps the pid of a daemon that is gone: by then the number may be another process's.
  daemonPid() {
    try {
      const pid = Number(fs.readFileSync(path.join(this.ws, 'workspace.lock'), 'utf8'));
      return fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').includes('serve') ? pid : undefined;
    } catch { return undefined; }
  }
  killDaemon(signal = 'SIGKILL') {
    const pid = this.daemonPid();
    if (pid) try { process.kill(pid, signal); } catch { /* gone already */ }
    return pid;
  }
  close() {
    const stubborn = endProcessesOf(this.ws);
    fs.rmSync(this.dir, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
    if (stubborn.length > 0) throw new Error(`daemons did not end on SIGTERM: ${stubborn}`);
  }
}

export function equal(actual, expected, what) {
  const a = JSON.stringify(actual), e = JSON.stringify(expected);
  if (a !== e) throw new Error(`${what}: ${a?.slice(0, 500)} is not ${e?.slice(0, 500)}`);
}
export function ok(condition, what) { if (!condition) throw new Error(what); }

export async function runAll() {
  let passed = 0, failed = 0;
  const only = process.argv[2];
  for (const { name, body } of tests) {
    if (only && !name.includes(only)) continue;
    const ws = new Workspace();
    let problem;
    try { await body(ws); } catch (e) { problem = e; }
    try { ws.close(); } catch (e) { problem ??= e; }
    if (problem) { failed++; console.log(`FAILED ${name}\n  ${problem.stack?.split('\n').slice(0, 3).join('\n  ')}`); } else passed++;
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed || !passed ? 1 : 0);
}

// The little of safetensors that the fixtures need: fp32 and int64 tensors.
export function readSafetensors(file) {
  const b = fs.readFileSync(file);
  const n = Number(b.readBigUInt64LE(0));
  const header = JSON.parse(b.subarray(8, 8 + n).toString());
  const out = {};
  for (const [name, t] of Object.entries(header)) {
    if (name === '__metadata__') continue;
    const bytes = b.subarray(8 + n + t.data_offsets[0], 8 + n + t.data_offsets[1]);
    const copy = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
    if (t.dtype === 'F32') out[name] = { shape: t.shape, data: new Float32Array(copy) };
    if (t.dtype === 'I32') out[name] = { shape: t.shape, data: Array.from(new Int32Array(copy)) };
    if (t.dtype === 'I64') out[name] = { shape: t.shape, data: Array.from(new BigInt64Array(copy), Number) };
  }
  return out;
}
