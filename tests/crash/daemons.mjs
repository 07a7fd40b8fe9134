// kill -9 of the real daemon and of shims at random moments, under eight agents that evaluate and record: what was acknowledged is there, once, and the
// counts are the rows'. And two first clients that race for a workspace nobody serves: one daemon, both served.
// AMK_CRASH_DAEMON_KILLS, AMK_CRASH_RACES: how many (default: a short run). AMK_CRASH_DEVICE=cuda: the agents measure on the GPU, and its workers are
// killed as well (docs/reliability.md). Prints "N passed, N failed".
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { binary, equal, ok, runAll, test } from '../e2e/cli/harness.mjs';

const wanted = (name, few) => Math.max(1, Number(process.env[name] ?? few));
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));
const kAgents = 8;
const onGpu = process.env.AMK_CRASH_DEVICE === 'cuda';
// A candidate takes seconds on a GPU, most of them to build it the first time and to open the device again after each kill.
const workload = onGpu ? { model: 'small', gpu: 'auto', device: 'cuda' } : { model: 'toy', gpu: 'h100', device: 'cpu' };
const environment = onGpu ? Object.fromEntries(['CUDA_VISIBLE_DEVICES', 'LD_LIBRARY_PATH', 'AMK_CACHE'].flatMap((n) => (process.env[n] ? [[n, process.env[n]]] : []))) : {};
const pause = () => (onGpu ? 300 + draw(2700) : 40 + draw(400));

// One `amk mcp`: ask() resolves with the reply, or with undefined when the shim is gone before it.
class Agent {
  constructor(ws) {
    this.child = spawn(binary, ['--workspace', ws.ws, 'mcp'], { env: ws.env(environment), cwd: ws.dir, stdio: ['pipe', 'pipe', 'ignore'] });
    this.waiting = new Map();
    this.next = 0;
    this.child.stdin.on('error', () => {});
    createInterface({ input: this.child.stdout }).on('line', (line) => {
      const reply = JSON.parse(line);  // anything else on stdout is a fault
      this.waiting.get(reply.id)?.(reply);
      this.waiting.delete(reply.id);
    });
    this.gone = new Promise((resolve) => this.child.on('close', () => {
      for (const tell of this.waiting.values()) tell(undefined);
      this.waiting.clear();
      this.ended = true;
      resolve();
    }));
  }
  ask(method, params = {}) {
    if (this.ended) return Promise.resolve(undefined);
    const id = ++this.next;
    return new Promise((resolve) => {
      this.waiting.set(id, resolve);
      this.child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
    });
  }
  hello() {
    return this.ask('initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'crash', version: '0' } });
  }
  tool(name, args) { return this.ask('tools/call', { name, arguments: args }); }
  end(signal = 'SIGKILL') { this.child.kill(signal); return this.gone; }
}

const draw = (() => {  // xorshift, so that a failing run can be told from its seed
  let state = Number(process.env.AMK_CRASH_SEED ?? Date.now() % 0x7fffffff) | 1;
  console.log(`seed ${state}`);
  return (below) => {
    state ^= state << 13; state ^= state >>> 17; state ^= state << 5;
    return (state >>> 0) % below;
  };
})();

function daemonsOf(ws) {
  return fs.readdirSync('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      const words = fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
      return words.includes('serve') && words.includes(ws.ws);
    } catch { return false; }
  }).map(Number);
}

// Children of the workspace's daemon that judge on a GPU.
function workersOf(ws) {
  const daemon = ws.daemonPid();
  return daemon === undefined ? [] : fs.readdirSync('/proc').filter((pid) => /^\d+$/.test(pid) && isWorker(pid, daemon)).map(Number);
}
function isWorker(pid, daemon) {
  try {
    if (fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')[1] !== 'worker') return false;
    return daemon === undefined || Number(fs.readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').pop().split(' ')[1]) === daemon;
  } catch { return false; }
}

// What an agent may say of a verdict.
const statusFor = { ok: 'revert', rejected: 'rejected', crash: 'crash', timeout: 'timeout' };

test('daemon and shims killed at random under eight agents', async (ws) => {
  const kills = wanted('AMK_CRASH_DAEMON_KILLS', 12);
  const killed = { daemon: 0, shim: 0, worker: 0 };
  const verdicts = {}, workers = new Set();
  const agents = [];
  const acknowledged = [], attempted = new Set();
  let stop = false, campaign, fault;

  // Repeats one call under one key until it is acknowledged: what an agent does whose connection broke.
  async function insist(index, name, args) {
    let told;
    for (let tries = 0; tries < 400 && !fault; tries++) {
      if (!agents[index] || agents[index].ended) {
        agents[index] = new Agent(ws);
        await agents[index].hello();
      }
      let reply = await agents[index].tool(name, args);
      for (let job; (job = reply?.result?.structuredContent) && ['queued', 'running'].includes(job.state);)
        reply = await agents[index].tool('amk_job', { job_id: job.job_id, wait_s: 20 });
      const content = reply?.result?.structuredContent;
      if (reply?.result && !reply.result.isError && !['lost', 'cancelled', 'failed'].includes(content.state)) return content.result ?? content;
      // What a killed daemon leaves behind is told as such; everything else is a fault of ours.
      told = JSON.stringify(content ?? reply?.result ?? reply?.error ?? null);
      if (/campaign-done/.test(told)) {  // eight experiments without a keep: a search takes it up again, and makes one of its own
        await agents[index].tool('amk_autoresearch', { ...workload, iters: 1, reopen: true, wait_s: 20 });
        continue;
      }
      if (reply && !/daemon|lost|unavailable|connection|restart|stop/i.test(told)) throw new Error(`${name}: ${told.slice(0, 400)}`);
      await sleep(20 + draw(60));
    }
    throw new Error(`${name} was not acknowledged in 400 tries: ${told?.slice(0, 400)}`);
  }
  async function agent(index) {
    for (let n = 0; !stop; n++) {
      const key = `a${index}-${n}`;
      const config = { pipelining_depth: 2 + draw(5) };
      const verdict = await insist(index, 'amk_eval', { ...workload, config, request_key: `e-${key}` });
      campaign ??= verdict.campaign;
      verdicts[verdict.status] = (verdicts[verdict.status] ?? 0) + 1;
      if (verdict.status === 'unavailable') continue;  // the GPU's fault, not this candidate's: nothing to record
      attempted.add(key);
      const state = await insist(index, 'amk_orchestrate_record',
        { status: statusFor[verdict.status], verdict_id: verdict.verdict_id, config, description: key, campaign: verdict.campaign, idempotency_key: `r-${key}` });
      acknowledged.push([key, state.experiment]);
    }
  }
  const all = Promise.all(Array.from({ length: kAgents }, (_, i) => agent(i)));
  all.catch((e) => { fault = e; stop = true; });
  while (killed.daemon + killed.shim + killed.worker < kills && !fault) {
    await sleep(pause());
    const judging = onGpu ? workersOf(ws) : [];
    judging.forEach((pid) => workers.add(pid));
    if (judging.length > 0 && draw(3) > 0) {
      try { process.kill(judging[draw(judging.length)], 'SIGKILL'); killed.worker++; } catch { /* gone already */ }
    } else if (draw(3) === 0) {
      const victim = agents[draw(kAgents)];
      if (victim && !victim.ended) { victim.child.kill('SIGKILL'); killed.shim++; }
    } else if (ws.killDaemon('SIGKILL')) {
      killed.daemon++;
    }
  }
  stop = true;
  await all;
  await Promise.all(agents.map((a) => a.end()));
  ws.killDaemon('SIGKILL');
  for (let wait = 0; wait < 400 && [...workers].some((pid) => isWorker(pid)); wait++) await sleep(25);
  equal([...workers].filter((pid) => isWorker(pid)), [], 'workers that outlived their daemons');

  const file = path.join(ws.dir, 'rows.jsonl');
  equal(ws.amk(['results', 'export', file]).code, 0, 'export');
  const rows = fs.readFileSync(file, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line));
  const byKey = new Map();
  for (const row of rows) byKey.set(row.description, [...(byKey.get(row.description) ?? []), row.experiment]);
  for (const [key, experiment] of acknowledged) equal(byKey.get(key), [experiment], `rows of acknowledged ${key}`);
  for (const row of rows) ok(row.loop !== 'agent' || attempted.has(row.description), `a row nobody recorded: ${row.description}`);
  const status = ws.amk(['orchestrate', 'status', '--campaign', campaign]).json;
  const recount = {};
  for (const row of rows) recount[row.outcome] = (recount[row.outcome] ?? 0) + 1;
  for (const [outcome, count] of Object.entries(status.counts)) equal(count, recount[outcome] ?? 0, `status counts ${outcome}`);
  equal(status.experiments.ended, rows.length, 'experiments ended');
  console.log(`${killed.daemon} daemons, ${killed.shim} shims and ${killed.worker} workers killed, verdicts ${JSON.stringify(verdicts)}, ${acknowledged.length} records acknowledged, ${rows.length} rows`);
  ok(acknowledged.length > 0, 'something was acknowledged');
});

test('two first clients race for a workspace: one daemon, both served', async (ws) => {
  const races = wanted('AMK_CRASH_RACES', 8);
  for (let i = 0; i < races; i++) {
    const pair = [new Agent(ws), new Agent(ws)];
    const replies = await Promise.all(pair.map(async (agent) => [await agent.hello(), await agent.tool('amk_orchestrate_status', {})]));
    for (const [hello, status] of replies) {
      ok(hello?.result?.serverInfo, `race ${i}: ${JSON.stringify(hello)?.slice(0, 200)}`);
      ok(status?.result && !status.result.isError, `race ${i}: ${JSON.stringify(status)?.slice(0, 300)}`);
    }
    // The other daemon, if one started, has seen the lock and is gone or going.
    let left = daemonsOf(ws);
    for (let wait = 0; wait < 200 && left.length !== 1; wait++) { await sleep(25); left = daemonsOf(ws); }
    equal(left.length, 1, `daemons after race ${i}`);
    equal(left[0], ws.daemonPid(), 'the one that has the lock');
    await Promise.all(pair.map((agent) => agent.end()));
    process.kill(left[0], 'SIGKILL');
    for (let wait = 0; wait < 400 && daemonsOf(ws).length > 0; wait++) await sleep(5);
  }
  console.log(`${races} races`);
});

await runAll();
