// A whole campaign over MCP stdio, as an agent drives it, with both official clients: doctor, propose, eval, loop, status, record (a claim; a
// kept backed by a verdict), next, report, results, results.tsv as a resource; then the shim is killed, another started, and the campaign
// is as it was. Usage: node campaign.mjs PATH_TO_AMK
import { eventually, processesWith, withEachClient } from './harness.mjs';

const amk = process.argv[2];
const model = 'toy';
const gpu = 'rtx5090';
await withEachClient(run);

async function run(c, connect, w) {
  const open = () => connect(amk, ['--workspace', w.path, 'mcp']);
  let peer = await open();
  const value = async (tool, args, options) => {
    const r = await peer.call(tool, args, options);
    c.that(`${tool} succeeds`, !r.isError, r.structuredContent);
    c.that(`${tool} says the same as text`, JSON.stringify(sorted(JSON.parse(r.content[0].text))) === JSON.stringify(sorted(r.structuredContent)));
    c.that(`${tool} stays under 8 KB`, Buffer.byteLength(r.content[0].text) <= 8192, Buffer.byteLength(r.content[0].text));
    return r.structuredContent;
  };

  // A call that took longer than the server waits for it is a job by now: its result, when it is done.
  const finished = async (r) => {
    while (r.job_id && ['queued', 'running'].includes(r.state)) r = await value('amk_job', { job_id: r.job_id, wait_s: 45 });
    return r.job_id && r.result ? r.result : r;
  };

  const tools = await peer.tools();
  for (const name of ['amk_doctor', 'amk_propose', 'amk_eval', 'amk_loop', 'amk_autoresearch', 'amk_orchestrate_status', 'amk_orchestrate_next',
    'amk_orchestrate_report', 'amk_orchestrate_record', 'amk_job', 'amk_results']) {
    c.that(`${name} is listed`, tools.some((t) => t.name === name));
  }
  c.that('every tool is annotated', tools.every((t) => ['readOnlyHint', 'destructiveHint', 'idempotentHint', 'openWorldHint'].every((h) => typeof t.annotations?.[h] === 'boolean')));

  const doctor = await value('amk_doctor', {});
  c.that('doctor names its workspace', JSON.stringify(doctor).includes(w.path), doctor);
  const proposed = await value('amk_propose', { model, gpu, device: 'cpu' });
  c.that('propose has knobs and suggestions', Object.keys(proposed.search_space ?? {}).length > 0 && proposed.suggestions.length > 0, Object.keys(proposed));

  const verdict = await value('amk_eval', { model, gpu, device: 'cpu', config: {} });
  c.that('the default config is valid and correct', verdict.valid === true && verdict.correct === true && verdict.status === 'ok', verdict);
  c.equal('on a cpu the latency is predicted', verdict.latency_kind, 'predicted');
  const kept = await peer.call('amk_orchestrate_record', { status: 'kept', verdict_id: verdict.verdict_id, kind: 'baseline', config: {}, description: 'the default' });
  c.that('a kept with the verdict of the evaluator is taken', !kept.isError && kept.structuredContent.recorded === 'kept', kept.structuredContent);
  const wrong = await peer.call('amk_eval', { model, gpu, device: 'cpu', config: { no_such_knob: 1 } });
  c.that('an unknown knob is an error that names it', wrong.isError && wrong.content[0].text.includes('no_such_knob'), wrong.content);
  const typo = await peer.call('amk_eval', { modell: model, config: {} });
  c.that('an unknown argument is an error with its cure', typo.isError && typo.content[0].text.includes('did you mean model'), typo.content);

  const progress = [];
  const loop = await finished(await value('amk_loop', { model, gpu, device: 'cpu', budget: '16' }, { onprogress: (p) => progress.push(p) }));
  c.that('the loop spent its budget', loop.counts && loop.rows.length > 0 && loop.best_verdict?.correct === true, loop.counts);
  c.that('progress was seen and increased', progress.length > 0 && progress.every((p, i) => i === 0 || p.progress > progress[i - 1].progress), progress.length);

  const status = await value('amk_orchestrate_status', {});
  c.that('a campaign is on', typeof status.campaign === 'string' && ['baseline', 'optimizing', 'done'].includes(status.state), status);
  const campaign = status.campaign;

  const claim = await value('amk_orchestrate_record', { campaign, status: 'revert', latency_us: 1, pct_roofline: 99, kind: 'tiling', description: 'typed by an agent' });
  c.that('what an agent types is a claim', JSON.stringify(claim).includes('claim'), claim);
  const forged = await peer.call('amk_orchestrate_record', { campaign, status: 'kept', latency_us: 1, config: {}, description: 'a best without evidence' });
  const after = await value('amk_orchestrate_status', { campaign });
  c.equal('a claim is never a best', after.best?.schedule_id, status.best?.schedule_id);
  c.that('a kept without a verdict is refused or a claim', forged.isError || JSON.stringify(forged.structuredContent).includes('claim'), forged.structuredContent);
  await value('amk_orchestrate_next', { campaign });
  const report = await value('amk_orchestrate_report', { campaign });
  c.that('the report names the campaign', JSON.stringify(report).includes(campaign), report);
  const results = await value('amk_results', { campaign, limit: 5 });
  c.that('results page', results.rows.length === 5 && results.next_cursor, results.next_cursor);
  const more = await value('amk_results', { campaign, limit: 5, cursor: results.next_cursor });
  c.that('the next page has other rows', JSON.stringify(more.rows) !== JSON.stringify(results.rows));

  const resource = (await peer.resources()).find((r) => r.name === 'results.tsv');
  c.that('results.tsv is a resource', resource, await peer.resources());
  const tsv = (await peer.read(resource.uri))[0].text;
  const lines = tsv.trim().split('\n');
  c.equal('its first columns are fixed', lines[0].split('\t').slice(0, 12),
    ['experiment', 'tag', 'loop', 'model', 'gpu', 'regime', 'correctness', 'latency_us', 'pct_of_roofline', 'schedule_id', 'kernel_id', 'description']);
  c.that('it has a line an experiment', lines.length > 16, lines.length);

  // A job that the client gives up on goes on, and its result can be fetched by another.
  const job = await value('amk_loop', { model, gpu, device: 'cpu', budget: 24, wait_s: 0, request_key: 'campaign-test' });
  const before = await value('amk_orchestrate_status', { campaign });
  process.kill(peer.pid(), 'SIGKILL');
  c.that('the killed shim is gone', await eventually(() => processesWith('mcp', w.path).length === 0));
  peer = await open();
  const again = await value('amk_orchestrate_status', { campaign });
  c.equal('the campaign is as it was', again.campaign, before.campaign);
  c.equal('with its best or a better one', again.state === before.state || again.state === 'optimizing' || again.state === 'done', true);
  if (job.job_id) {
    const done = await finished({ job_id: job.job_id, state: 'running' });
    c.that('the job went on without its client, to its end', done.rows?.length > 0, done);
    const joined = await value('amk_loop', { model, gpu, device: 'cpu', budget: 24, request_key: 'campaign-test' });
    c.equal('the same request_key gives the same result', joined.best_verdict?.schedule_id, done.best_verdict?.schedule_id);
  }
  await peer.close();
  c.that('the shim leaves with its client', await eventually(() => processesWith('mcp', w.path).length === 0));
}

function sorted(v) {
  if (Array.isArray(v)) return v.map(sorted);
  if (v && typeof v === 'object') return Object.fromEntries(Object.keys(v).sort().map((k) => [k, sorted(v[k])]));
  return v;
}
