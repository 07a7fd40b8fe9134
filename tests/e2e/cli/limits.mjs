// A daemon that may have few descriptors or little memory: who cannot be served is told so, who is served is served on, nothing is lost.
import { spawn, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { createInterface } from 'node:readline';
import { binary, equal, ok, patience, sanitized, test } from './harness.mjs';

const sleep = (ms) => new Promise((r) => setTimeout(r, ms));
const evaluate = (ws, model) => ws.amk(['eval', model, '--gpu', 'h100', '--device', 'cpu']);

// Serves the workspace under limits of the shell; resolves when it does, or with undefined when it could not start.
async function limited(ws, limits) {
  const child = spawn('bash', ['-c', `${limits}; exec "$0" --workspace "$1" serve`, binary, ws.ws], { env: ws.env(), cwd: ws.dir, stdio: 'ignore' });
  for (let i = 0; i < 800 && child.exitCode === null && child.signalCode === null; i++) {
    if (fs.existsSync(`${ws.ws}/daemon.sock`)) return child;
    await sleep(25);
  }
  child.kill('SIGKILL');
  return undefined;
}
async function stop(child) {
  const gone = new Promise((resolve) => child.once('exit', resolve));
  if (child.exitCode === null && child.signalCode === null) { child.kill('SIGTERM'); await gone; }
}

test('few descriptors: clients beyond them are refused, the others and later ones are served', async (ws) => {
  const daemon = await limited(ws, 'ulimit -n 48');
  ok(daemon, 'it starts');
  equal(evaluate(ws, 'toy').code, 0, 'and judges');
  const clients = [];
  for (let i = 0; i < 60; i++) {
    const child = ws.start(['--workspace', ws.ws, 'mcp']);
    child.stdin.on('error', () => {});
    let reply;
    createInterface({ input: child.stdout }).once('line', (line) => { reply = JSON.parse(line); });
    child.stdin.write(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' }) + '\n');
    clients.push({ child, answered: () => reply });
  }
  // Those that are refused ask on for ten seconds before they say so; here it is enough that some are served and some are not. On a machine with a GPU its driver
  // takes most of the descriptors.
  for (let i = 0; i < 200 * patience && !clients.some((c) => c.answered()?.result); i++) await sleep(50);
  await sleep(300);
  const served = clients.filter((c) => c.answered()?.result).length;
  ok(served >= 1 && served < 60, `${served} of 60 are served`);
  equal([daemon.exitCode, daemon.signalCode], [null, null], 'the daemon lives');
  for (const { child } of clients) child.kill('SIGKILL');
  await Promise.all(clients.map(({ child }) => new Promise((resolve) => (child.exitCode ?? child.signalCode) === null ? child.once('exit', resolve) : resolve())));
  equal(evaluate(ws, 'toy').code, 0, 'and judges again');
  equal(ws.daemonPid(), daemon.pid, 'the same daemon');
  await stop(daemon);
});

test('a limit on the size of files: as a full disk, and the daemon lives', async (ws) => {
  const daemon = await limited(ws, 'ulimit -f 1000');  // KiB: less than what is kept aside for a full disk
  ok(daemon, 'it starts');
  equal(ws.amk(['orchestrate', 'status']).code, 0, 'and answers');
  const refused = ws.amk(['loop', 'toy', '--device', 'cpu', '--budget', '1']);
  equal([refused.code, refused.json?.error?.kind, refused.json?.error?.data?.reason], [3, 'unavailable', 'disk-full'], `told as what it is: ${refused.out.slice(0, 300)}`);
  equal(ws.daemonPid(), daemon.pid, 'the same daemon');
  await stop(daemon);
  equal(evaluate(ws, 'toy').code, 0, 'without the limit it judges');
});

test('little memory: an answer or a typed refusal, and nothing acknowledged is lost', (ws) => {
  if (sanitized) return;
  let refused = 0, rows = 0;
  for (const kilobytes of [200_000, 120_000]) {
    // The daemon that a verb starts inherits the limit.
    const run = (...args) => {
      const r = spawnSync('bash', ['-c', `ulimit -v ${kilobytes}; exec "$0" "$@"`, binary, ...args], { env: ws.env(), cwd: ws.dir, encoding: 'utf8', timeout: 20_000 });
      let json;
      try { json = JSON.parse(r.stdout); } catch { /* told below */ }
      ok(json && (r.status === 0 || json.error), `${args[0]} within ${kilobytes} KiB: exit ${r.status} ${r.signal}, ${r.stdout.slice(0, 200)} ${r.stderr.slice(-200)}`);
      if (json.error) {
        equal(json.error.kind, 'unavailable', `${args[0]} within ${kilobytes} KiB: ${r.stdout.slice(0, 300)}`);
        refused++;
      }
      return json.error ? undefined : json;
    };
    for (const model of ['small', 'toy']) {
      const verdict = run('eval', model, '--gpu', 'h100', '--device', 'cpu');
      if (verdict && run('orchestrate', 'record', '--campaign', verdict.campaign, '--status', 'revert', '--verdict-id', verdict.verdict_id, '--description', `${kilobytes}`)) rows++;
    }
    ws.killDaemon('SIGTERM');
    for (let i = 0; i < 100 && ws.daemonPid(); i++) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
  }
  ok(refused > 0, 'some limit was too small for something');
  const file = `${ws.dir}/rows.jsonl`;
  equal(ws.amk(['results', 'export', file]).code, 0, 'without limits all is there');
  const kept = fs.readFileSync(file, 'utf8').split('\n').filter(Boolean).length;
  ok(kept >= rows, `${kept} rows of ${rows} that were acknowledged`);
});
