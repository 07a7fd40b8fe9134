// amk generate against what transformers computed (tests/fixtures/hf).
import fs from 'node:fs';
import path from 'node:path';
import { equal, fixtures, ok, readSafetensors, test } from './harness.mjs';

for (const name of fs.readdirSync(fixtures)) {
  const dir = path.join(fixtures, name);
  if (name.startsWith('reject-')) {
    test(`generate: ${name} is refused`, (ws) => {
      const r = ws.amk(['generate', dir, '--prompt-ids', '1,2,3', '--max-tokens', '1', '--device', 'cpu']);
      equal(r.code, 2, 'exit');
      ok(r.json.error.message.length > 10, r.json?.error?.message);
    });
    continue;
  }
  test(`generate: ${name} gives transformers' ids and logits`, (ws) => {
    const oracle = readSafetensors(path.join(dir, 'oracle.safetensors'));
    const greedy = oracle.greedy_ids.data;
    const ids = oracle.input_ids.data;
    const prompt = ids.slice(0, 5);
    const expected = greedy.length > 16 ? greedy.slice(greedy.length - 16) : greedy;
    const r = ws.amk(['generate', dir, '--prompt-ids', prompt.join(','), '--max-tokens', '16', '--device', 'cpu']);
    equal(r.code, 0, `exit ${r.err}`);
    equal(r.json.prompt_ids, prompt, 'prompt_ids');
    equal(r.json.generated_ids, expected, 'generated_ids');

    // One pass over all input ids: row i is the logits after token i.
    const file = path.join(ws.dir, 'logits.f32');
    const all = ws.amk(['generate', dir, '--prompt-ids', ids.join(','), '--max-tokens', '1', '--device', 'cpu', '--logits', file]);
    equal(all.code, 0, 'exit with --logits');
    const [T, V] = oracle.logits_fp32.shape;
    const raw = fs.readFileSync(file);
    equal(raw.length, T * V * 4, 'bytes of logits');
    const mine = new Float32Array(raw.buffer.slice(raw.byteOffset, raw.byteOffset + raw.byteLength));
    const theirs = oracle.logits_fp32.data;
    let mean = 0, square = 0, worst = 0;
    for (const x of theirs) { mean += x / theirs.length; square += (x * x) / theirs.length; }
    for (let i = 0; i < theirs.length; i++) worst = Math.max(worst, Math.abs(mine[i] - theirs[i]));
    const std = Math.sqrt(square - mean * mean);
    ok(worst <= 1e-4 * std, `max abs error ${worst}, std ${std}`);
  });
}

test('generate: bad prompts are refused by name', (ws) => {
  for (const [args, word] of [[['--prompt-ids', '1,x'], 'x'], [['--prompt-ids', ''], 'prompt'], [['--prompt-ids', '99999999'], '99999999'], [['--prompt-ids', '-1'], '-1'], [[], 'prompt'],
    [['--prompt-ids', '1', '--max-tokens', '0'], 'max-tokens']]) {
    const r = ws.amk(['generate', 'toy', '--device', 'cpu', ...args]);
    equal(r.code, 2, `exit for ${args}`);
    ok(r.json.error.message.includes(word), `${args}: ${r.json.error.message}`);
  }
});

test('generate: several prompts in one decode give what each gives alone', (ws) => {
  const dir = path.join(fixtures, 'llama-gqa');
  const prompts = ['1,2,3', '4,5', '6'];
  const r = ws.amk(['generate', `${dir}@b3`, '--prompt-ids', prompts.join(';'), '--max-tokens', '4', '--device', 'cpu', '--verify']);
  equal(r.code, 0, `exit ${r.err}`);
  equal(r.json.batch, 3, 'batch');
  equal(r.json.verified, true, 'verified');
  prompts.forEach((prompt, i) => {
    const alone = ws.amk(['generate', dir, '--prompt-ids', prompt, '--max-tokens', '4', '--device', 'cpu']);
    equal(r.json.sequences[i].generated_ids, alone.json.generated_ids, `sequence ${i}`);
  });
  for (const ids of ['1,2,3', '1;2', '1;2;', '1;2;3;4']) {
    const refused = ws.amk(['generate', `${dir}@b3`, '--prompt-ids', ids, '--max-tokens', '1', '--device', 'cpu']);
    equal(refused.code, 2, `exit for ${ids}`);
    equal(refused.json.error.data.field, 'prompt-ids', `field for ${ids}`);
  }
});
