// Verbs that judge: doctor, propose, eval, loop, compile.
import fs from 'node:fs';
import path from 'node:path';
import { equal, fixtures, ok, sanitized, test } from './harness.mjs';

const gqa = path.join(fixtures, 'llama-gqa');

test('doctor: one document, exit 0, says what is missing', (ws) => {
  const r = ws.amk(['doctor']);
  equal(r.code, 0, 'exit');
  ok(r.json.targets.includes('h100') && r.json.targets.includes('rtx5090'), 'targets listed');
  ok(Array.isArray(r.json.advice), 'advice');
  equal(r.out.trim().split('\n').length, 1, 'lines on stdout');
});

test('eval: a real checkpoint is valid, correct and predicted', (ws) => {
  const r = ws.amk(['eval', gqa, '--gpu', 'h100', '--device', 'cpu']);
  equal(r.code, 0, 'exit');
  const v = r.json;
  equal([v.status, v.valid, v.correct, v.latency_kind, v.gpu, v.device], ['ok', true, true, 'predicted', 'h100', 'cpu'], 'verdict');
  ok(v.latency_us >= v.bound_us && v.bound_us > 0, 'not below the floor');
  ok(Math.abs(v.pct_of_roofline - (100 * v.bound_us) / v.latency_us) < 1e-6, 'pct_of_roofline is bound over latency');
  ok(v.correctness.max_abs_err <= v.correctness.bound && v.correctness.positions_checked > 1, 'checked at several positions');
  ok(v.correctness.bitwise_repeatable, 'repeatable');
  for (const key of ['verdict_id', 'schedule_id', 'workload', 'tasks', 'weight_bytes', 'smem_bytes', 'noise', 'versus', 'withheld', 'rejected', 'rejected_reason', 'read_bandwidth_gbs'])
    ok(key in v, `verdict has ${key}`);
});

test('eval: a broken explicit placement is rejected with a witness', (ws) => {
  const r = ws.amk(['eval', gqa, '--gpu', 'h100', '--device', 'cpu', '--config', '{"sm_assignment":{"L0.qkv.0":9999}}']);
  equal(r.code, 1, 'exit');
  equal([r.json.status, r.json.valid, r.json.latency_us], ['rejected', false, null], 'verdict');
  ok(r.json.rejected.rule && r.json.rejected.message.includes('9999'), 'rule and message');
  ok(JSON.stringify(r.json.rejected.witness).includes('9999'), 'witness names the SM');
});

test('eval: bad input is refused by name, nothing is stored', (ws) => {
  for (const [config, field, value] of [
    ['{"tilling":{}}', 'tilling', null], ['{"tiling":{"gemv":{"N_tile":7}}}', 'N_tile', '7'], ['{"tiling":{"gemv":{"N_tile":"16"}}}', 'N_tile', '16'],
    ['{"pipelining_depth":9}', 'pipelining_depth', '9'], ['{"pipelining_depth":1e400}', 'config', null], ['{"kernel_knobs":{"publish":"magic"}}', 'publish', 'magic'],
    ['[1]', '--config', null], ['{"a":1,"a":2}', 'duplicate', null], ['{', 'config', null],
  ]) {
    const r = ws.amk(['eval', 'toy', '--gpu', 'h100', '--device', 'cpu', '--config', '-'], { input: config });
    equal(r.code, 2, `exit for ${config}`);
    ok(r.json?.error?.message.includes(field) || field === 'config' || field === '--config', `${config}: message names ${field}: ${r.json?.error?.message}`);
    if (value) ok(r.json.error.message.includes(value), `${config}: message shows ${value}`);
  }
  for (const [args, word] of [[['eval', 'no-such-model'], 'no-such-model'], [['eval', 'toy', '--gpu', 'h900'], 'h900'], [['eval', 'toy', '--device', 'tpu'], 'tpu'], [['eval'], 'model'],
    [['frobnicate'], 'frobnicate'], [[], 'verb'], [['loop', 'toy', '--budget', '0'], 'budget'], [['eval', 'toy', '--config', '/no/such/file'], '/no/such/file'],
    [['autoresearch', 'toy', '--minutes', 'nan'], 'minutes'], [['job', 'x', '--wait', 'nan'], 'wait'], [['serve', '--idle-exit', 'nan'], 'idle-exit'], [['serve', '--idle-exit', 'inf'], 'idle-exit'], [['serve', '--idle-exit', '-1'], 'idle-exit']]) {
    const r = ws.amk(args);
    equal(r.code, 2, `exit for ${args}`);
    ok(r.json?.error?.message.includes(word), `${args}: ${r.json?.error?.message}`);
  }
  equal(ws.amk(['results']).json.rows.length, 0, 'rows stored');
});

test('eval: config from file, stdin and text agree; spelling does not change the id', (ws) => {
  const file = path.join(ws.dir, 'c.json');
  fs.writeFileSync(file, '{"pipelining_depth": 2, "tiling": {"gemv": {"N_tile": 32}}}');
  const ids = [
    ws.amk(['eval', 'toy', '--device', 'cpu', '--config', file]), ws.amk(['eval', 'toy', '--device', 'cpu', '--config', '-'], { input: '{"tiling":{"gemv":{"N_tile":32.0}},"pipelining_depth":2}' }),
    ws.amk(['eval', 'toy', '--device', 'cpu', '--config', '{"pipelining_depth":2e0,"tiling":{"gemv":{"N_tile":32}}}']),
  ].map((r) => r.json.schedule_id);
  equal(new Set(ids).size, 1, `ids ${ids}`);
  ok(ids[0] !== ws.amk(['eval', 'toy', '--device', 'cpu']).json.schedule_id, 'another config has another id');
});

test('propose: typed knobs, incumbent, untried suggestions, under 8 KB', (ws) => {
  const r = ws.amk(['propose', 'llama-3.2-1b', '--gpu', 'h200', '--device', 'cpu']);
  equal(r.code, 0, 'exit');
  ok(r.out.length < 8192, `${r.out.length} bytes`);
  ok((sanitized ? r.json.suggestions.length > 0 : r.json.suggestions.length === 5) && r.json.suggestions.every((s) => s.predicted_us > 0 && s.why), 'five suggestions with reasons');
  ok(JSON.stringify(r.json.search_space).includes('tiling.gemv.N_tile'), 'knobs by name');
  // What was measured on this GPU before, and how.
  ok(r.json.tuned.latency_us > 0 && r.json.tuned.evidence.includes('docs/lab/'), `tuned ${JSON.stringify(r.json.tuned)}`);
  const tried = ws.amk(['eval', 'llama-3.2-1b', '--gpu', 'h200', '--device', 'cpu', '--config', JSON.stringify(r.json.tuned.config)]);
  ok(tried.code === 0 && tried.json.valid, 'the tuned config is valid');
  // A suggestion put into the incumbent is what was predicted: `set` replaces whole keys, and what they lack is a default.
  const change = r.json.suggestions.find((s) => s.change['kernel_knobs.publish']);
  ok(change, 'confirmed or flagged publishing, predicted faster, is suggested');
  const e = ws.amk(['eval', 'llama-3.2-1b', '--gpu', 'h200', '--device', 'cpu', '--config', JSON.stringify({ ...r.json.incumbent, ...change.set })]);
  ok(e.json.config.kernel_knobs.publish === change.change['kernel_knobs.publish'], 'the change is made');
  equal({ ...e.json.config.kernel_knobs, publish: 0 }, { ...r.json.incumbent.kernel_knobs, publish: 0 }, 'and nothing else');
  equal(ws.amk(['loop', 'llama-3.2-1b', '--gpu', 'h200', '--device', 'cpu', '--budget', '8']).code, 0, 'loop');
  const after = ws.amk(['propose', 'llama-3.2-1b', '--gpu', 'h200', '--device', 'cpu']);
  ok(after.out.length < 8192, `${after.out.length} bytes`);
  equal(after.json.incumbent_is, 'best', 'incumbent after a loop');
  equal(after.json.tried.experiments, 8, 'experiments');
  equal(ws.amk(['propose', 'toy', '--gpu', 'h200', '--device', 'cpu']).json.tuned, undefined, 'nothing is known of toy');
});

test('loop: keeps only what is faster; exports follow', (ws) => {
  const r = ws.amk(['loop', 'toy', '--gpu', 'rtx5090', '--budget', '16', '--device', 'cpu']);
  equal(r.code, 0, 'exit');
  equal(r.json.evaluations, 16, 'evaluations');
  equal(Object.values(r.json.counts).reduce((a, b) => a + b, 0), 16, 'counts add up');
  const kept = r.json.rows.filter((x) => x.outcome === 'kept').map((x) => x.latency_us);
  for (let i = 1; i < kept.length; i++) ok(kept[i] <= kept[i - 1] / 1.01 + 1e-9, `kept ${kept[i]} after ${kept[i - 1]}`);
  equal(r.json.best_verdict.latency_us, Math.min(...kept), 'best is the fastest kept');
  const lines = fs.readFileSync(path.join(ws.ws, 'results.tsv'), 'utf8').trimEnd().split('\n');
  equal(lines[0].split('\t').slice(0, 12), 'experiment tag loop model gpu regime correctness latency_us pct_of_roofline schedule_id kernel_id description'.split(' '), 'header');
  equal(lines.length, 17, 'lines');
  for (const line of lines.slice(1)) {
    const cells = line.split('\t');
    ok(cells[6] !== '', 'correctness is never empty');
    ok((cells[7] !== '') === (cells[6] === 'PASS'), 'latency only with PASS');
  }
  const corpus = fs.readFileSync(path.join(ws.ws, 'corpus.jsonl'), 'utf8').trimEnd().split('\n').map((l) => JSON.parse(l));
  equal(corpus.length, r.json.counts.kept, 'corpus holds the kept points');
});

test('compile: the lowered program as JSON', (ws) => {
  const r = ws.amk(['compile', 'toy-2L', '--gpu', 'h100', '--out', 'p.json']);
  equal(r.code, 0, 'exit');
  const program = JSON.parse(fs.readFileSync(path.join(ws.dir, 'p.json'), 'utf8'));
  ok(program.version >= 1 && program.tasks.length > 0 && program.queues.length === 132, 'program for 132 SMs');
  equal(r.json.schedule_id, program.schedule_id, 'schedule_id');
});

test('for people: an unknown verb is named with the one that was meant, help says how to call, tables say once what all rows have alike', (ws) => {
  const slip = ws.amk(['lopp', 'toy']);
  equal([slip.code, slip.json.error.data.did_you_mean], [2, 'loop'], 'a slip');
  ok(slip.err.includes('did you mean loop?'), slip.err);
  const strange = ws.amk(['xyzzy']).json.error;
  equal(strange.data.did_you_mean, undefined, 'no slip of anything');
  ok(strange.message.startsWith('unknown verb xyzzy; accepted: doctor, propose, '), strange.message);
  // Words and options that no verb has: named with what was meant and what is accepted, whatever stands around them.
  const wrong = (args) => { const r = ws.amk(args); equal(r.code, 2, args.join(' ')); return r.json.error; };
  const option = wrong(['eval', 'toy', '--gpuu', 'h100', '--device', 'cpu']);
  equal([option.data.field, option.data.value, option.data.did_you_mean], ['option', '--gpuu', '--gpu'], 'an option');
  ok(option.message.startsWith('unknown option of amk eval: --gpuu; did you mean --gpu? Accepted: ') && option.message.includes('--hypothesis'), option.message);
  const below = wrong(['orchestrate', 'stauts']);
  equal([below.data.did_you_mean, below.data.accepted.sort().join(' ')], ['status', 'next record report status'], 'a verb of orchestrate');
  equal(wrong(['orchestrate']).data.accepted.sort().join(' '), 'next record report status', 'none of orchestrate');
  equal([wrong(['eval']).data.field, wrong(['loop', 'toy', '--budget', '0']).data.field], ['model', '--budget'], 'what is missing, or out of range');
  ok(wrong(['eval', 'toy', 'small']).message.startsWith('one word too many for amk eval: small'), 'one word too many');
  ok(!ws.amk(['job', '--help']).out.includes('amk doctor'), "a verb's help has examples of its own");
  ok(ws.amk(['loop', '--help']).out.includes('portfolio'), 'strategies are named');
  ok(ws.amk(['orchestrate', 'status', '--help']).out.includes('Usage: amk orchestrate status '), 'usage names the whole command');
  equal(ws.amk(['loop', 'toy', '--gpu', 'h100', '--device', 'cpu', '--budget', '4']).code, 0, 'loop');
  const rows = ws.amk(['results']).json.rows;
  const table = ws.amk(['--pretty', 'results']).out.split('\n');
  const head = table.find((l) => l.includes('experiment'));
  ok(table.some((l) => l.includes('in all: ') && l.includes('gpu h100') && l.includes('model toy')), 'alike');
  ok(!head.includes('gpu') && head.trim().startsWith('experiment') && head.trim().endsWith('verdict_id'), head);
  for (const row of rows) ok(table.some((l) => l.includes(row.verdict_id) && l.includes(row.outcome)), `the row of ${row.experiment}`);
});
