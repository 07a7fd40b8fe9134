// Ends what a test's workspace still has running, and says what would not go. Clients first: a shim that lives on starts the daemon again, in a
// workspace that is about to be removed, and nobody stops that one.
import fs from 'node:fs';

// Processes that name this workspace among their arguments or in their environment.
function processesOf(workspace) {
  const found = [];
  for (const name of fs.readdirSync('/proc')) {
    if (!/^\d+$/.test(name) || Number(name) === process.pid) continue;
    try {
      const args = fs.readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0');
      const env = fs.readFileSync(`/proc/${name}/environ`, 'utf8').split('\0');
      if (args.includes(workspace) || env.includes(`AMK_WORKSPACE=${workspace}`)) found.push({ pid: Number(name), daemon: args.includes('serve') });
    } catch { /* ended meanwhile, or another user's */ }
  }
  return found;
}

function signal(processes, name) {
  for (const { pid } of processes) try { process.kill(pid, name); } catch { /* ended meanwhile */ }
}

const pause = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

// Returns the pids of daemons that did not end on SIGTERM within the limit and were killed. Blocks.
export function endProcessesOf(workspace, limitMs = 12_000) {
  signal(processesOf(workspace).filter((p) => !p.daemon), 'SIGKILL');
  signal(processesOf(workspace).filter((p) => p.daemon), 'SIGTERM');
  const until = Date.now() + limitMs;
  let left = processesOf(workspace);
  while (left.length > 0 && Date.now() < until) {
    pause(10);
    left = processesOf(workspace);
  }
  signal(left, 'SIGKILL');
  return left.filter((p) => p.daemon).map((p) => p.pid);
}
