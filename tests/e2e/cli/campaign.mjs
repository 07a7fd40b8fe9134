// Campaigns: evidence, claims, resumption, kills, two clients.
import fs from 'node:fs';
import path from 'node:path';
import { equal, ok, patience, test } from './harness.mjs';

const sleep = (ms) => new Promise((r) => setTimeout(r, ms));

test('record: a claim is never a best; a kept needs the evidence for that very config', (ws) => {
  const slow = { fusion_grouping: [] };  // every operator its own instruction: many more hops
  const base = ws.amk(['eval', 'small', '--gpu', 'h100', '--device', 'cpu', '--config', JSON.stringify(slow)]).json;
  equal(ws.amk(['orchestrate', 'record', '--status', 'kept', '--verdict-id', base.verdict_id]).code, 0, 'baseline recorded');
  const better = ws.amk(['eval', 'small', '--gpu', 'h100', '--device', 'cpu']).json;
  ok(better.latency_us < base.latency_us / 1.01, `default ${better.latency_us} beats ${base.latency_us}`);
  const bestId = () => ws.amk(['results', '--best']).json.rows?.[0]?.schedule_id;

  const claim = ws.amk(['orchestrate', 'record', '--status', 'revert', '--latency-us', '0.5', '--config', '{"pipelining_depth":7}', '--description', 'I swear']);
  equal(claim.code, 0, 'claim accepted as a claim');
  equal(bestId(), base.schedule_id, 'claim did not make a best');
  const lie = ws.amk(['orchestrate', 'record', '--status', 'kept', '--verdict-id', better.verdict_id, '--config', JSON.stringify({ pipelining_depth: 3 })]);
  ok(lie.code === 2 || lie.code === 3, 'verdict of another config refused');
  const fabricated = ws.amk(['orchestrate', 'record', '--status', 'kept', '--verdict-id', 'v-0000', '--latency-us', '1']);
  ok(fabricated.code !== 0 && fabricated.json.error.message.includes('v-0000'), 'unknown verdict refused by name');
  equal(bestId(), base.schedule_id, 'still the baseline');

  const kept = ws.amk(['orchestrate', 'record', '--status', 'kept', '--verdict-id', better.verdict_id, '--idempotency-key', 'k1']);
  equal(kept.code, 0, 'kept with evidence');
  equal(bestId(), better.schedule_id, 'new best');
  equal(ws.amk(['orchestrate', 'record', '--status', 'kept', '--verdict-id', better.verdict_id, '--idempotency-key', 'k1']).code, 0, 'retry returns the first result');
  ok(ws.amk(['orchestrate', 'record', '--status', 'kept', '--verdict-id', better.verdict_id]).code !== 0, 'a verdict is used once');
});

test('orchestrate: a fresh workspace has a status, and says that there is no campaign', (ws) => {
  const status = ws.amk(['orchestrate', 'status']);
  equal(status.code, 0, `exit: ${status.out.slice(0, 300)}`);
  equal(status.json.campaigns ?? [], [], 'campaigns');
  for (const verb of ['next', 'report']) {
    const r = ws.amk(['orchestrate', verb]);
    equal(r.code, 2, `exit of ${verb}`);
    ok(r.json.error.message.length > 10, r.json.error.message);
  }
});

test('orchestrate: status, next and report agree with the rows', (ws) => {
  const loop = ws.amk(['loop', 'toy', '--gpu', 'h200', '--budget', '12', '--device', 'cpu']).json;
  const status = ws.amk(['orchestrate', 'status', '--campaign', loop.campaign]).json;
  for (const [outcome, n] of Object.entries(loop.counts)) equal(status.counts[outcome], n, `count of ${outcome}`);
  const next = ws.amk(['orchestrate', 'next', '--campaign', loop.campaign]);
  equal(next.code, 0, 'next');
  ok(['continue', 'stop'].includes(next.json.action) && next.json.reason, 'action and reason');
  ok(ws.amk(['orchestrate', 'next', '--campaign', loop.campaign]).json.unchanged === true, 'nothing changed: says so');
  const report = ws.amk(['orchestrate', 'report', '--campaign', loop.campaign]).json;
  ok(report.markdown.includes(loop.best_verdict.schedule_id.slice(0, 9)), 'report names the best');
  ok(fs.existsSync(report.path) && JSON.parse(fs.readFileSync(report.json_path, 'utf8')), 'written to the workspace');
  ok(ws.amk(['orchestrate', 'status', '--campaign', 'c999']).json.error.message.includes('c999'), 'unknown campaign by name');
});

test('autoresearch: same seed, same run; called again it does not start over', (ws) => {
  const go = () => ws.amk(['autoresearch', 'toy', '--gpu', 'rtx5090', '--iters', '20', '--device', 'cpu', '--seed', '5']);
  const sequence = () => ws.amk(['results', '--sort', 'time', '--limit', '200']).json.rows.map((r) => r.schedule_id);
  const first = go();
  equal(first.code, 0, 'exit');
  ok(fs.existsSync(first.json.report), 'report');
  const ids = sequence();
  equal(new Set(ids).size, ids.length, 'no config twice');
  equal(go().json.evaluations, first.json.evaluations, 'resumed run has nothing left to do');
  equal(sequence(), ids, 'nothing added');
  ws.killDaemon('SIGTERM');
  fs.rmSync(ws.ws, { recursive: true });
  equal(go().json.best_verdict.schedule_id, first.json.best_verdict.schedule_id, 'same best in a fresh workspace');
  equal(sequence(), ids, 'same sequence in a fresh workspace');
});

// One run, killed `kills` times after an experiment or two, against the same run that nobody kills: the same rows in the same order.
async function killedAndResumed(ws, args, kills, draw) {
  const committed = () => ws.amk(['results', '--sort', 'time', '--limit', '200']).json.rows.filter((r) => r.outcome !== 'lost').map((r) => [r.schedule_id, r.outcome, r.latency_us]);
  const anew = async () => {
    ws.killDaemon('SIGTERM');
    await sleep(300);
    fs.rmSync(ws.ws, { recursive: true, force: true });
  };
  await anew();
  const whole = ws.amk(args).json, rows = committed();
  await anew();
  let killed = 0;
  for (let round = 0; round < kills; round++) {
    const child = ws.start(args);
    child.stdout.resume();
    child.stderr.resume();
    const until = Date.now() + 20000 * patience;
    const lines = () => { try { return fs.readFileSync(path.join(ws.ws, 'results.tsv'), 'utf8').split('\n').length - 2; } catch { return 0; } };
    const wanted = lines() + 1 + draw(6);
    while (lines() < wanted && Date.now() < until && child.exitCode === null) await sleep(15);
    await sleep(draw(60));
    if (draw(6) > 0 && ws.killDaemon('SIGKILL')) killed++;  // else only its client
    child.kill('SIGKILL');
    await sleep(100);
  }
  const resumed = ws.amk(args).json, what = args.join(' ');
  equal([resumed.evaluations, resumed.stopped], [whole.evaluations, whole.stopped], `evaluations and end of ${what}`);
  equal(resumed.best_verdict.schedule_id, whole.best_verdict.schedule_id, `best of ${what}`);
  equal(committed(), rows, `rows of ${what}`);
  equal(new Set(rows.map((r) => r[0])).size, rows.length, `no config twice in ${what}`);
  equal(rows.length, whole.evaluations, `committed experiments of ${what}`);
  return killed;
}

// AMK_RESUME_RUNS: how many more runs, of workloads of both families and strategies drawn by lot.
test('autoresearch: killed and resumed ends like an uninterrupted one', async (ws) => {
  let state = Number(process.env.AMK_RESUME_SEED ?? 7) | 1;
  const draw = (below) => {
    state ^= state << 13; state ^= state >>> 17; state ^= state << 5;
    return (state >>> 0) % below;
  };
  const any = (...choices) => choices[draw(choices.length)];
  let killed = await killedAndResumed(ws, ['autoresearch', 'small', '--gpu', 'h100', '--iters', '24', '--overnight', '--device', 'cpu', '--seed', '9'], 2, draw);
  const more = Number(process.env.AMK_RESUME_RUNS ?? 0);
  for (let run = 0; run < more; run++) {
    const args = ['autoresearch', any('toy', 'toy-2L', 'toy#qkv', 'det_gemm:fwd:16x64x64', 'det_gemm:db:32x64x64'), '--gpu', 'h100', '--device', 'cpu', '--iters', any('12', '30', '45'),
      '--seed', String(1 + draw(999)), '--strategy', any('portfolio', 'portfolio', 'random', 'local', 'ils', 'evolutionary', 'surrogate', 'vnd', 'gp'),
      ...any([], ['--overnight'], ['--overnight', '--cold'], ['--minutes', '60', '--overnight'])];
    killed += await killedAndResumed(ws, args, 2 + draw(10), draw);
  }
  if (more > 0) console.log(`${killed} daemons killed in ${more + 1} runs`);
});

test('kill -9 of the daemon: what was acknowledged is there, and the next verb works', (ws) => {
  const loop = ws.amk(['loop', 'toy', '--budget', '6', '--device', 'cpu']).json;
  ok(ws.killDaemon('SIGKILL'), 'there was a daemon');
  const status = ws.amk(['orchestrate', 'status', '--campaign', loop.campaign]);
  equal(status.code, 0, 'exit');
  equal(Object.values(status.json.counts).reduce((a, b) => a + b, 0), 6, 'experiments');
});

test('two clients on one campaign see one truth; --no-daemon says who has the workspace', async (ws) => {
  ws.amk(['doctor']);
  const run = (seed) => new Promise((resolve) => {
    const child = ws.start(['loop', 'toy', '--budget', '10', '--device', 'cpu', '--seed', String(seed)]);
    let out = '';
    child.stdout.on('data', (d) => (out += d));
    child.on('close', (code) => resolve({ code, json: JSON.parse(out) }));
  });
  const [a, b] = await Promise.all([run(1), run(2)]);
  equal([a.code, b.code], [0, 0], 'exits');
  equal(a.json.campaign, b.json.campaign, 'one campaign');
  const status = ws.amk(['orchestrate', 'status', '--campaign', a.json.campaign]).json;
  equal(Object.values(status.counts).reduce((x, y) => x + y, 0), 20, 'both counted');
  const refused = ws.amk(['--no-daemon', 'doctor']);
  equal(refused.code, 3, 'exit');
  ok(/lock|daemon|another/.test(refused.json.error.message), refused.json.error.message);
  const pid = ws.killDaemon('SIGTERM');
  for (let i = 0; i < 100 && fs.existsSync(`/proc/${pid}`); ++i) await sleep(100);
  equal(ws.amk(['--no-daemon', 'orchestrate', 'status', '--campaign', a.json.campaign]).json.counts, status.counts, 'the same without a daemon');
});

test('job: a detached loop is followed, and cancelled', async (ws) => {
  const started = ws.amk(['loop', 'small', '--budget', '100000', '--device', 'cpu', '--detach']).json;
  ok(started.job_id && ['queued', 'running'].includes(started.state), JSON.stringify(started).slice(0, 200));
  for (let i = 0; i < 100 * patience && ws.amk(['results']).json.rows.length === 0; ++i) await sleep(200);
  const cancelled = ws.amk(['job', started.job_id, '--cancel', '--wait', '20']).json;
  ok(['cancelled', 'done'].includes(cancelled.state), cancelled.state);
  ok(ws.amk(['results']).json.rows.length > 0, 'what was measured stays');
  ok(ws.amk(['job', 'nonsense']).json.error.message.includes('nonsense'), 'unknown job by name');
});

test('results: import is foreign and never a best; export; pages', (ws) => {
  const tsv = ['experiment', 'tag', 'loop', 'model', 'gpu', 'regime', 'correctness', 'latency_us', 'pct_of_roofline', 'schedule_id', 'kernel_id', 'description'].join('\t');
  fs.writeFileSync(path.join(ws.dir, 'theirs.tsv'), `${tsv}\n1\tt\tl\ttoy\trtx5090\tbf16-b1\tPASS\t0.001\t99\tsabc\tk\ttoo good\nbroken line\n`);
  const imported = ws.amk(['results', 'import', 'theirs.tsv']).json;
  equal([imported.rows, imported.refused_count], [1, 1], 'one row, one refused line');
  equal(ws.amk(['results', 'import', 'theirs.tsv']).json.rows, 0, 'a repeated import adds nothing');
  const loop = ws.amk(['loop', 'toy', '--gpu', 'rtx5090', '--budget', '5', '--device', 'cpu']).json;
  ok(loop.best_verdict.latency_us > 0.001, 'the foreign number is no best');
  const all = [];
  for (let cursor; ;) {
    const page = ws.amk(['results', '--limit', '2', '--sort', 'time', ...(cursor ? ['--cursor', cursor] : [])]).json;
    all.push(...page.rows);
    if (!(cursor = page.next_cursor)) break;
  }
  equal(all.length, 5, 'paged rows');
  equal(ws.amk(['results', '--cursor', 'garbage']).code, 2, 'bad cursor');
  // The newest row has no latency, and a description that a terminal would obey and a spreadsheet compute.
  const rejected = ws.amk(['eval', 'toy', '--gpu', 'rtx5090', '--device', 'cpu', '--config', '{"sm_assignment":{"L0.qkv.0":999}}']).json;
  equal(ws.amk(['orchestrate', 'record', '--status', 'rejected', '--verdict-id', rejected.verdict_id, '--description', '=1+1 \x1b[2J']).code, 0, 'recorded');
  for (const sort of [[], ['--sort', '-time']])
    for (const ending of ['csv', 'tsv']) {
      equal(ws.amk(['results', ...sort, 'export', `out.${ending}`]).json.rows, 6, 'exported');
      const lines = fs.readFileSync(path.join(ws.dir, `out.${ending}`), 'utf8').trimEnd().split(/\r?\n/);
      const columns = fs.readFileSync(path.join(ws.ws, 'results.tsv'), 'utf8').split('\n')[0].split('\t');
      equal(lines[0].split(ending === 'csv' ? ',' : '\t'), columns, `columns of ${ending}`);
      equal(lines.length, 7, 'header and rows');
      ok(lines.some((l) => l.includes(ending === 'csv' ? ",'=1+1 " : '\t=1+1 ')), 'a formula is text');
    }
  equal(fs.readFileSync(path.join(ws.dir, 'out.tsv'), 'utf8').split('\n').slice(1).reverse().join('\n').trim(),
    fs.readFileSync(path.join(ws.ws, 'results.tsv'), 'utf8').split('\n').slice(1).join('\n').trim(), 'newest first, the same lines');
  ok(!ws.amk(['--pretty', 'results']).out.includes('\x1b'), 'nothing for the terminal');
});

test('results: wrong arguments are told by option, value and what is accepted', (ws) => {
  ws.amk(['loop', 'toy', '--gpu', 'h100', '--device', 'cpu', '--budget', '3']);
  const refusals = {
    '--limit abc': '--limit is "abc"; accepted: a whole number: Rows a page, 1 to 200',
    '--limit 201': 'limit is 201; accepted: integer from 1 to 200',
    '--diff e1': '--diff: At least 2 required but received 1; accepted: Two schedule or experiment ids',
    '--sort foo': 'sort is "foo"; accepted: time, -time, latency_us, -latency_us',
    '--outcome best': 'outcome is "best"; accepted: kept, revert,',
    '--campaign c99': 'no campaign c99',
    '--best --sort time': 'sort is "time"; accepted: left out beside best, which takes model, gpu and campaign',
    '--group gpu --model toy': 'model is "toy"; accepted: left out beside group',
  };
  for (const [args, said] of Object.entries(refusals)) {
    const r = ws.amk(['results', ...args.split(' ')]);
    equal(r.code, 2, `exit of ${args}`);
    ok(r.json.error.message.startsWith(said), `${args}: ${r.json.error.message}`);
  }
  ok(ws.amk(['loop', 'toy', '--seed', 'x']).json.error.message.startsWith('--seed is "x"; accepted: 0 or more'), 'a seed');
  for (const by of ['model', 'workload']) equal(ws.amk(['results', '--group', by]).json.rows.map((r) => [r.model, r.experiments]), [['toy', 3]], `by ${by}`);
  equal(ws.amk(['results', '--best', '--gpu', 'h100']).json.rows.length, 1, 'best of a GPU');
  equal(ws.amk(['results', '--best', '--gpu', 'a100']).json.rows.length, 0, 'best of another');
});

test('report: a hypothesis comes back with what became of it; plots lie beside it', (ws) => {
  const verdict = ws.amk(['eval', 'toy', '--gpu', 'h100', '--device', 'cpu', '--hypothesis', 'shallow | pipelines <win>', '--config', '{"pipelining_depth":1}']).json;
  ws.amk(['loop', 'toy', '--gpu', 'h100', '--budget', '8', '--device', 'cpu']);
  const report = ws.amk(['orchestrate', 'report', '--campaign', verdict.campaign]).json;
  const history = JSON.parse(fs.readFileSync(report.json_path, 'utf8')).history;
  const mine = history.hypotheses.find((h) => h.hypothesis === 'shallow | pipelines <win>');
  equal([mine?.schedule_id, mine?.outcome, mine?.latency_us], [verdict.schedule_id, 'not recorded', verdict.latency_us], 'hypothesis');
  equal(history.experiments_read, 8, 'experiments');
  equal(report.plots.length, 4, 'plots');
  for (const plot of report.plots) {
    ok(fs.readFileSync(plot, 'utf8').startsWith('<svg '), plot);
    ok(report.markdown.includes(`(${path.basename(plot)})`) || /knobs|phases/.test(plot), `report shows ${plot}`);
  }
});

test('prior: another campaign is a source of the next one, and cold ignores it', (ws) => {
  ws.amk(['loop', 'toy', '--gpu', 'h100', '--budget', '12', '--device', 'cpu']);
  const warm = ws.amk(['loop', 'toy', '--gpu', 'h200', '--budget', '6', '--device', 'cpu']).json;
  equal([warm.prior.rows, warm.prior.sources[0]?.campaign], [12, 'toy on h100 (cpu)'], 'source');
  ok(['corpus', 'cost-model'].includes(warm.prior.chosen), warm.prior.chosen);
  const cold = ws.amk(['loop', 'toy', '--gpu', 'a100', '--budget', '6', '--device', 'cpu', '--cold']);
  equal([cold.code, cold.json.prior], [0, null], 'cold');
});
