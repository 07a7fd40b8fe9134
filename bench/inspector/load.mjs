// Usage: node load.mjs AMK INSPECTOR. Five runs of each kind, in turn; the medians of their p50 and p99 are printed.
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const [amk, inspector] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), 'amk-inspector-'));
const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];

// target: a command, or [url, '--transport', 'http'].
function load(target, pace) {
  const run = spawnSync(process.execPath, [inspector, '--cli', ...target, '--method', 'tools/call', '--tool-name', 'amk_orchestrate_status',
    '--protocol-era', 'legacy', '--load', '--load-requests', '500', '--load-concurrency', '10', ...pace],
    { encoding: 'utf8', timeout: 120_000, env: { ...process.env, HOME: folder } });
  const report = JSON.parse(run.stdout);
  if (report.errorRate !== 0) throw new Error(`${target[0]}: ${run.stdout}`);
  return report.latencyMs;
}

async function serve(command) {
  const server = spawn(command[0], command.slice(1), { stdio: ['ignore', 'pipe', 'ignore'] });
  const line = await new Promise((resolve, reject) => {
    createInterface({ input: server.stdout }).once('line', resolve);
    server.once('exit', () => reject(new Error(`${command[0]} ended`)));
  });
  const end = () => new Promise((resolve) => {
    server.once('exit', resolve);
    server.kill('SIGTERM');
  });
  return { target: [JSON.parse(line).url, '--transport', 'http'], end };
}

// What the real server says, for the one that says nothing else.
function answersOf(workspace) {
  const ask = [['initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'load', version: '0' } }], ['tools/list', {}],
    ['tools/call', { name: 'amk_orchestrate_status', arguments: {} }]];
  const lines = ask.map(([method, params], id) => JSON.stringify({ jsonrpc: '2.0', id, method, params })).join('\n');
  const replies = spawnSync(amk, ['mcp', '--workspace', workspace], { input: `${lines}\n`, encoding: 'utf8', timeout: 30_000 }).stdout.trim().split('\n').map((l) => JSON.parse(l));
  return Object.fromEntries(ask.slice(1).map(([method], i) => [method, replies.find((r) => r.id === i + 1).result]));
}

const workspace = join(folder, 'workspace');
const servers = [];
try {
  const ours = await serve([amk, '--workspace', workspace, 'serve', '--http', '127.0.0.1:0', '--no-token']);
  servers.push(ours);
  const answers = join(folder, 'answers.json');
  writeFileSync(answers, JSON.stringify(answersOf(workspace)));
  const constant = [process.execPath, join(dirname(fileURLToPath(import.meta.url)), 'null-server.mjs'), answers];
  const nothing = await serve(constant);
  servers.push(nothing);
  const targets = { stdio: [amk, 'mcp', '--workspace', workspace], stdio_null: [...constant, '--stdio'], http: ours.target, http_null: nothing.target };
  for (const [pace, flags] of [['at_full_speed', []], ['at_100_a_second', ['--load-rate', '100']]]) {
    const runs = Object.fromEntries(Object.keys(targets).map((name) => [name, []]));
    // In turn, so that what else the machine does meets all alike.
    for (let round = 0; round < 5; round += 1) for (const name of Object.keys(targets)) runs[name].push(load(targets[name], flags));
    for (const name of Object.keys(targets))
      for (const q of ['p50', 'p99'])
        console.log(JSON.stringify({ bench: 'inspector', metric: `${name}_${pace}_${q}`, value: median(runs[name].map((r) => r[q])), unit: 'ms' }));
  }
} finally {
  for (const server of servers) await server.end();
  rmSync(folder, { recursive: true, force: true });
}
