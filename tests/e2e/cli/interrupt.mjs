// Ctrl-C, or a supervisor's SIGTERM, while a long verb runs: it ends at once, in this process or in the daemon, and what was measured is kept.
import fs from 'node:fs';
import { equal, ok, patience, test } from './harness.mjs';

const sleep = (ms) => new Promise((r) => setTimeout(r, ms));

for (const [where, flags] of [['by the daemon', []], ['in this process', ['--no-daemon']]])
  for (const signal of ['SIGINT', 'SIGTERM'])
    test(`${signal} while a search is run ${where}`, async (ws) => {
      const child = ws.start(['--workspace', ws.ws, ...flags, 'loop', 'small', '--gpu', 'h100', '--device', 'cpu', '--budget', '100000']);
      let out = '', err = '';
      child.stdout.on('data', (d) => { out += d; });
      child.stderr.on('data', (d) => { err += d; });
      const gone = new Promise((resolve) => child.once('exit', (code, by) => resolve([code, by])));
      const rows = () => {
        try { return fs.readFileSync(`${ws.ws}/results.tsv`, 'utf8').split('\n').length - 2; } catch { return 0; }
      };
      for (let i = 0; i < 400 * patience && rows() < 2; i++) await sleep(25);
      ok(rows() >= 2, `it searches: ${err.slice(-300)}`);
      child.kill(signal);
      const late = setTimeout(() => child.kill('SIGKILL'), 20_000 * patience);
      equal(await gone, [3, null], `it ends by itself: ${out.slice(0, 300)} ${err.slice(-300)}`);
      clearTimeout(late);
      const answer = JSON.parse(out);
      equal(answer.error.kind, 'cancelled', 'and says why');
      const kept = rows();
      ok(kept >= 2, 'what was measured is kept');
      if (flags.length > 0) return;
      let job;
      for (let i = 0; i < 400 * patience; i++) {
        job = ws.amk(['job', answer.error.data.job_id]).json;
        if (job.state !== 'running') break;
        await sleep(25);
      }
      equal(job.state, 'cancelled', 'the daemon has stopped too');
    });

test('an interruption that is asked for twice waits for nobody', async (ws) => {
  // A quarter of a minute for one judgement, which looks at its stop token between samples only.
  const child = ws.start(['--workspace', ws.ws, '--no-daemon', 'eval', 'det_gemm:fwd:64x64x16777216', '--gpu', 'h200', '--device', 'cpu', '--config', '{}']);
  const gone = new Promise((resolve) => child.once('exit', (code, by) => resolve([code, by])));
  await sleep(500 * patience);
  child.kill('SIGINT');
  await sleep(200);
  child.kill('SIGINT');
  const [code, by] = await gone;
  ok(by === 'SIGINT' || code === 3, `${code} ${by}`);
});
