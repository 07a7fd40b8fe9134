// Claude Code and Codex each run a whole campaign against `amk mcp`, without an account; agent.mjs is their model. What the model was shown is judged:
// sizes, JSON, cures in errors, and (as every id is taken from it) that it is enough to go on. Usage: node campaign.mjs AMK BIN_FOLDER; last line
// "N passed, N failed".
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { changed, decide, mistake, parsed, workload } from './agent.mjs';
import { run, shims } from './processes.mjs';
import { StandIn } from './stand-in.mjs';

const [amk, bin] = process.argv.slice(2).map((p) => path.resolve(p));
const tools = ['amk_autoresearch', 'amk_doctor', 'amk_eval', 'amk_job', 'amk_loop', 'amk_orchestrate_next', 'amk_orchestrate_record', 'amk_orchestrate_report',
  'amk_orchestrate_status', 'amk_propose', 'amk_results'];
const limit_bytes = 8192;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let passed = 0, failed = 0;
function check(what, condition, detail) {
  if (condition) { passed++; return; }
  failed++;
  console.log(`FAILED ${what}: ${JSON.stringify(detail)?.slice(0, 700)}`);
}

function judge(name, model, done) {
  const that = (what, condition, detail) => check(`${name}: ${what}`, condition, detail);
  that('ends by itself', done.code === 0, { code: done.code, signal: done.signal, err: done.err.slice(-500), out: done.out.slice(-300) });
  for (const tool of tools) that(`the model is offered ${tool}`, model.tools.includes(tool), model.tools);
  const results = model.results.map((r) => ({ ...r, json: parsed(r.text) }));
  for (const [i, r] of results.entries()) {
    const bytes = Buffer.byteLength(r.text);
    that(`result ${i} (${r.tool}) is JSON of at most 8 KB`, r.json !== null && typeof r.json === 'object' && bytes <= limit_bytes, { bytes, text: r.text.slice(0, 300) });
    that(`only the mistake is an error (${i}, ${r.tool})`, (r.json?.error !== undefined) === (i === 2), r.text.slice(0, 600));
    if (r.isError !== undefined) that(`result ${i} (${r.tool}) is flagged as what it is`, r.isError === (i === 2), r.isError);
  }
  const of = (tool) => results.filter((r) => r.tool === tool).map((r) => r.json ?? {});
  that('every step was taken', results.at(-1)?.tool === 'amk_orchestrate_report', results.map((r) => r.tool));
  that('doctor is well', of('amk_doctor')[0]?.healthy === true, of('amk_doctor')[0]);
  const [first, second] = of('amk_propose');
  that('propose has knobs, and suggestions with a change and why', first?.search_space?.knobs?.length > 0 && first.suggestions?.length > 0
    && first.suggestions.every((s) => Object.keys(s.change ?? {}).length > 0 && Object.keys(s.set ?? {}).length > 0 && s.why), first?.suggestions);
  const [refused, baseline, candidate] = of('amk_eval');
  const campaign = baseline?.campaign;
  that('asking starts no campaign, the first evaluation does', first?.campaign === null && /^c\d+$/.test(campaign ?? '') && second?.campaign === campaign,
    [first?.campaign, campaign, second?.campaign]);
  const { message, data } = refused?.error ?? {};
  that('the error names field, value, what was meant and what is accepted', data?.field === mistake.knob && data.value === mistake.value
    && data.did_you_mean === mistake.meant && data.accepted?.includes(mistake.meant) && message?.includes(mistake.knob) && message.includes(mistake.meant), refused);
  that('the cure works', baseline?.config?.[mistake.meant] === mistake.value, baseline?.config);
  for (const [what, v] of Object.entries({ baseline, candidate }))
    that(`the verdict of the ${what} is whole`, v?.status === 'ok' && v.valid && v.correct && v.latency_kind === 'predicted' && v.latency_us > 0 && /^v/.test(v.verdict_id ?? '')
      && v.campaign === campaign, v);
  that('the loop was a job', of('amk_loop')[0]?.job_id && ['queued', 'running'].includes(of('amk_loop')[0].state), of('amk_loop')[0]);
  const [ended, again] = of('amk_job').filter((j) => j.state === 'done');
  that('the job ended with a best', ended?.result?.best_verdict?.correct === true && ended.result.campaign === campaign, ended);
  that('its result can be fetched again', again !== undefined && JSON.stringify(again.result) === JSON.stringify(ended.result), again);
  that('the candidate is the suggestion', second && candidate && holds(candidate.config, changed(second.incumbent, second.suggestions[0].set)), candidate?.config);
  const [before, after] = of('amk_orchestrate_record');
  that('the baseline was kept on its verdict', before?.recorded === 'kept' && before.verdict_id === baseline?.verdict_id, before);
  that('the candidate was kept on its verdict', after?.recorded === 'kept' && after.is_best === true && after.verdict_id === candidate?.verdict_id, after);
  that('it is at least 1% faster than what the loop left', candidate?.latency_us <= 0.99 * ended?.result?.best_verdict?.latency_us, [candidate?.latency_us, ended?.result?.best_verdict?.latency_us]);
  const report = of('amk_orchestrate_report')[0]?.markdown ?? '';
  const row = (label) => report.split('\n').find((line) => line.startsWith(`| ${label} |`)) ?? '';
  that('the report rests the baseline on its verdict', baseline && row('baseline').includes(baseline.verdict_id), report);
  that('the report rests the best on its verdict', candidate && row('best').includes(candidate.verdict_id), report);
  return { campaign, best: candidate?.verdict_id };
}

// After the client has gone: no shim stays, and the campaign is in the daemon as the model left it.
async function aftermath(name, { dir, env }, { campaign, best }) {
  for (let i = 0; i < 100 && shims(env.AMK_WORKSPACE).length > 0; i++) await sleep(50);
  check(`${name} leaves no shim`, shims(env.AMK_WORKSPACE).length === 0, shims(env.AMK_WORKSPACE));
  const status = await run(amk, ['orchestrate', 'status', '--campaign', campaign ?? 'c1'], { env, cwd: dir, limit_ms: 20_000 });
  check(`${name} leaves its campaign`, status.code === 0 && best && parsed(status.out)?.best?.verdict_id === best, status.out + status.err);
}

// Whether a canonical config has all that a shorter one says; what that one leaves out is a default.
function holds(config, part) {
  if (part === null || typeof part !== 'object' || Array.isArray(part)) return JSON.stringify(config) === JSON.stringify(part);
  return Object.entries(part).every(([key, value]) => holds(config?.[key], value));
}

async function inFolder(body) {
  const dir = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), 'amk-agents-')));
  const env = { HOME: dir, PATH: process.env.PATH, AMK_WORKSPACE: path.join(dir, 'ws') };
  const model = new StandIn(decide);
  try {
    await body({ dir, env, model, port: await model.listen() });
  } catch (e) {
    check('no exception', false, e.stack);
  } finally {
    model.close();
    await run(amk, ['--workspace', env.AMK_WORKSPACE, 'serve', '--stop', '--force'], { env, cwd: dir, limit_ms: 20_000 });
    fs.rmSync(dir, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}

await inFolder(async ({ dir, env, model, port }) => {
  // The project's own .mcp.json, with an ./amk that is the built program.
  fs.copyFileSync(new URL('../../../.mcp.json', import.meta.url), path.join(dir, '.mcp.json'));
  const launcher = (body) => fs.writeFileSync(path.join(dir, 'amk'), `#!/bin/sh\n${body}\n`, { mode: 0o755 });
  launcher(`exec '${amk}' "$@"`);
  Object.assign(env, { ANTHROPIC_BASE_URL: `http://127.0.0.1:${port}`, ANTHROPIC_API_KEY: 'none', DISABLE_AUTOUPDATER: '1', CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1', ENABLE_TOOL_SEARCH: 'false' });
  const claude = (args, limit_ms) => run(path.join(bin, 'claude'), args, { env, cwd: dir, limit_ms });
  const done = await claude(['-p', `optimise ${workload.model}`, '--mcp-config', '.mcp.json', '--strict-mcp-config', '--allowedTools', 'mcp__amk', '--output-format', 'json'], 60_000);
  await aftermath('Claude Code', { dir, env }, judge('Claude Code', model, done));
  // Exit 0 even when a server fails: the text says which. A project's servers need approval once, which the settings give.
  fs.mkdirSync(path.join(dir, '.claude'), { recursive: true });
  fs.writeFileSync(path.join(dir, '.claude', 'settings.local.json'), JSON.stringify({ enableAllProjectMcpServers: true }));
  fs.writeFileSync(path.join(dir, '.claude.json'), JSON.stringify({ projects: { [dir]: { hasTrustDialogAccepted: true, enabledMcpjsonServers: ['amk'] } } }));
  const connected = (list) => /^amk: .* Connected\s*$/m.test(list.out);
  const list = await claude(['mcp', 'list'], 30_000);
  check('claude mcp list says connected', connected(list), list);
  launcher('exit 3');
  const broken = await claude(['mcp', 'list'], 30_000);
  check('claude mcp list says so when it is not', /^amk: /m.test(broken.out) && !connected(broken), broken);
});

await inFolder(async ({ dir, env, model, port }) => {
  env.CODEX_HOME = path.join(dir, 'codex');
  fs.mkdirSync(env.CODEX_HOME);
  const file = path.join(env.CODEX_HOME, 'config.toml');
  fs.writeFileSync(file, `model = "stand-in"\nmodel_provider = "stand-in"\n\n[model_providers.stand-in]\nname = "stand-in"\nbase_url = "http://127.0.0.1:${port}/v1"\nwire_api = "responses"\nrequires_openai_auth = false\n`);
  const set = await run(amk, ['setup', 'codex', '--write', '--yes'], { env, cwd: dir, limit_ms: 20_000 });
  check('amk setup codex writes its table', set.code === 0, set);
  // The table names the source tree's launcher; here the built program is meant, and its calls are approved beforehand.
  fs.writeFileSync(file, fs.readFileSync(file, 'utf8').replace(/command = ".*"/, `command = ${JSON.stringify(amk)}`) + 'default_tools_approval_mode = "approve"\n\n[mcp_servers.amk.env]\nAMK_WORKSPACE = ' + JSON.stringify(env.AMK_WORKSPACE) + '\n');
  const done = await run(path.join(bin, 'codex'), ['exec', '--skip-git-repo-check', '--json', `optimise ${workload.model}`], { env, cwd: dir, limit_ms: 60_000 });
  await aftermath('Codex', { dir, env }, judge('Codex', model, done));
});

console.log(`${passed} passed, ${failed} failed`);
process.exit(failed || !passed ? 1 : 0);
