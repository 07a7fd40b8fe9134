// tune-instruction: one instruction's knobs, alone; campaigns of MODEL#op stay apart from those of MODEL.
import path from 'node:path';
import { equal, fixtures, ok, test } from './harness.mjs';

const cpu = ['--gpu', 'h100', '--device', 'cpu'];
const ops = ['qkv', 'attention', 'o_proj', 'gate_up', 'down', 'lm_head'];

test('tune-instruction: keeps what is faster, rows in a campaign of its own', (ws) => {
  const whole = ws.amk(['loop', 'toy', ...cpu, '--budget', '2']);
  equal(whole.code, 0, 'loop exit');
  for (const op of ops) {
    const r = ws.amk(['tune-instruction', op, 'toy', ...cpu, '--budget', '4', '--seed', '3']);
    equal(r.code, 0, `${op}: exit`);
    equal([r.json.workload, r.json.device, r.json.evaluations], [`toy#${op}`, 'cpu', 4], `${op}: what was done`);
    ok(r.json.campaign !== whole.json.campaign, `${op}: its own campaign`);
    const best = r.json.best_verdict;
    equal([best.status, best.correct, best.latency_kind, best.workload], ['ok', true, 'predicted', `toy#${op}`], `${op}: best`);
    ok(best.latency_us < whole.json.best_verdict.latency_us, `${op}: a part costs less than the whole`);
    ok(Object.values(r.json.counts).reduce((a, b) => a + b, 0) === 4, `${op}: every evaluation has an outcome`);
  }
  const rows = ws.amk(['results', '--model', 'toy']).json.rows;
  equal([rows.length, rows.every((row) => row.model === 'toy')], [2, true], 'the model has only its own rows');
  const tuned = ws.amk(['results', '--model', 'toy#down']).json.rows;
  equal([tuned.length, tuned.every((row) => row.model === 'toy#down')], [4, true], 'the instruction as well');
  const next = ws.amk(['orchestrate', 'next', '--campaign', whole.json.campaign]);
  equal(next.code, 0, 'the model can go on');
});

test('tune-instruction: the same workload through eval, propose and a checkpoint folder', (ws) => {
  const v = ws.amk(['eval', 'toy#gate_up', ...cpu, '--config', '{"tiling":{"gemv":{"N_tile":32}}}']);
  equal([v.code, v.json.workload, v.json.correct], [0, 'toy#gate_up', true], 'eval');
  const p = ws.amk(['propose', 'toy#attention', ...cpu]).json;
  const knobs = JSON.stringify(p.search_space);
  ok(knobs.includes('kv_block') && !knobs.includes('N_tile'), 'only what the instruction reads');
  const r = ws.amk(['tune-instruction', 'qkv', path.join(fixtures, 'qwen3-qknorm'), ...cpu, '--budget', '2']);
  equal(r.code, 0, `checkpoint: ${r.err}`);
  ok(r.json.workload.endsWith('qwen3-qknorm#qkv'), 'named by folder and instruction');
});

test('tune-instruction: what is wrong is named with what is accepted', (ws) => {
  const onGpu = ws.amk(['doctor']).json.gpus.length > 0;
  for (const [args, word] of [
    [['tune-instruction', 'mlp', 'toy'], 'gate_up'], [['tune-instruction', 'mlp', 'toy'], 'mlp'], [['tune-instruction'], 'op'], [['tune-instruction', 'down'], 'model'],
    [['tune-instruction', 'down', 'no-such-model'], 'no-such-model'], [['tune-instruction', 'down', 'toy', '--budget', '0'], 'budget'], [['eval', 'toy#mlp'], 'gate_up'],
    [['tune-instruction', 'down', 'det_gemm:fwd:64x64x64'], 'det_gemm'],
    [['eval', 'toy#down', ...cpu, '--config', '{"tiling":{"attention":{"kv_block":128}}}'], 'kv_block'],
    ...(onGpu ? [] : [[['tune-instruction', 'down', 'toy', '--device', 'cuda'], 'cuda']]),
  ]) {
    const r = ws.amk(args);
    ok(r.code === 2 || (args.includes('cuda') && r.code !== 0), `exit ${r.code} for ${args}`);
    ok(r.json?.error?.message.includes(word), `${args}: ${r.json?.error?.message}`);
  }
  equal(ws.amk(['results']).json.rows.length, 0, 'nothing was stored');
});
