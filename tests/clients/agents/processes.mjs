// Children with a time limit, none of which outlives this process; and the shims of one workspace.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import { patience } from '../../support/patience.mjs';

const running = new Set();
function end(child) { try { process.kill(-child.pid, 'SIGKILL'); } catch { /* gone */ } }
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => { running.forEach(end); process.exit(1); });

// Runs to the end, or to the limit: {code, signal, out, err}. Its whole process group is killed at the limit.
export function run(command, args, { env, cwd, limit_ms }) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { env, cwd, stdio: ['ignore', 'pipe', 'pipe'], detached: true });
    running.add(child);
    let out = '', err = '';
    child.stdout.on('data', (d) => (out += d));
    child.stderr.on('data', (d) => (err += d));
    const timer = setTimeout(() => end(child), limit_ms * patience);
    const finish = (code, signal) => { clearTimeout(timer); running.delete(child); resolve({ code, signal, out, err }); };
    child.on('close', finish);
    child.on('error', (e) => { err += String(e); finish(-1); });
  });
}

// `amk mcp` processes that serve this workspace. It is in their environment: the clients' configurations put it there.
export function shims(workspace) {
  return fs.readdirSync('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    const words = (file) => fs.readFileSync(`/proc/${pid}/${file}`, 'utf8').split('\0');
    try { return words('cmdline').includes('mcp') && words('environ').includes(`AMK_WORKSPACE=${workspace}`); } catch { return false; }
  });
}
