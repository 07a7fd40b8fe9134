// Claude Code and Codex each run a whole campaign against `amk mcp`, without an account: doctor, propose, a mistake, eval, record, a loop as a job, report.
// The stand-in model takes every id it needs from the text it was shown. Usage: node campaign.mjs AMK BIN_FOLDER; last line "N passed, N failed".
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { StandIn } from './stand-in.mjs';

const [amk, bin] = process.argv.slice(2).map((p) => path.resolve(p));
const workload = { model: 'toy', gpu: 'rtx5090', device: 'cpu' };
let passed = 0, failed = 0;
function check(what, condition, detail) {
  if (condition) { passed++; return; }
  failed++;
  console.log(`FAILED ${what}: ${JSON.stringify(detail)?.slice(0, 700)}`);
}
// Codex puts a line about time before the result; the JSON object is what matters.
function parsed(text) {
  const at = text.indexOf('{');
  try { return JSON.parse(at > 0 ? text.slice(at) : text); } catch { return undefined; }
}

// What a sensible agent would do, step by step, from what it has been shown.
function decide(results) {
  const last = results.length ? parsed(results.at(-1).text) ?? {} : {};
  const suggestion = () => results.map((r) => parsed(r.text)).find((r) => r?.suggestions)?.suggestions?.[0]?.config ?? {};
  switch (results.length) {
    case 0: return { tool: 'amk_doctor', args: {} };
    case 1: return { tool: 'amk_propose', args: workload };
    case 2: return { tool: 'amk_eval', args: { ...workload, config: { pipelining_dept: 3 } } };
    case 3: return { tool: 'amk_eval', args: { ...workload, config: suggestion(), hypothesis: 'the first suggestion of propose' } };
    case 4: return { tool: 'amk_orchestrate_record', args: { status: 'kept', verdict_id: last.verdict_id, campaign: last.campaign, description: 'baseline' } };
    case 5: return { tool: 'amk_loop', args: { ...workload, budget: 6, wait_s: 0 } };
    default: break;
  }
  if (results.at(-1).tool === 'amk_orchestrate_report' || results.length > 20) return null;
  if (last.job_id && ['queued', 'running'].includes(last.state)) return { tool: 'amk_job', args: { job_id: last.job_id, wait_s: 20 } };
  return { tool: 'amk_orchestrate_report', args: { campaign: last.campaign ?? last.result?.campaign } };
}

function run(command, args, { env, cwd, limit = 90_000 }) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { env, cwd, stdio: ['ignore', 'pipe', 'pipe'], detached: true });
    let out = '', err = '';
    child.stdout.on('data', (d) => (out += d));
    child.stderr.on('data', (d) => (err += d));
    const timer = setTimeout(() => { try { process.kill(-child.pid, 'SIGKILL'); } catch { /* gone */ } }, limit);
    child.on('close', (code, signal) => { clearTimeout(timer); resolve({ code, signal, out, err }); });
    child.on('error', (e) => { clearTimeout(timer); resolve({ code: -1, out, err: String(e) }); });
  });
}

function judge(name, model, done) {
  check(`${name} ends by itself`, done.code === 0, { code: done.code, signal: done.signal, err: done.err.slice(-500), out: done.out.slice(-300) });
  const tools = JSON.stringify(model.tools);
  for (const tool of ['amk_doctor', 'amk_propose', 'amk_eval', 'amk_loop', 'amk_job', 'amk_orchestrate_record', 'amk_orchestrate_report'])
    check(`${name}: the model is offered ${tool}`, tools.includes(tool));
  const results = model.results.map((r) => ({ ...r, json: parsed(r.text) }));
  for (const [i, r] of results.entries()) {
    check(`${name}: result ${i} (${r.tool}) is JSON`, r.json !== undefined, r.text.slice(0, 300));
    check(`${name}: result ${i} (${r.tool}) is at most 8 KB`, Buffer.byteLength(r.text) <= 8192 + 200, Buffer.byteLength(r.text));
  }
  const of = (tool) => results.filter((r) => r.tool === tool).map((r) => r.json);
  const [mistake, verdict] = of('amk_eval');
  check(`${name}: the mistake is named with its cure`, mistake?.error?.message?.includes('pipelining_depth'), mistake);
  check(`${name}: the verdict is whole`, verdict?.correct === true && verdict.latency_kind === 'predicted' && /^v/.test(verdict.verdict_id ?? ''), verdict);
  check(`${name}: the keep was taken on that evidence`, of('amk_orchestrate_record')[0]?.recorded === 'kept', of('amk_orchestrate_record')[0]);
  check(`${name}: the loop was a job`, of('amk_loop')[0]?.job_id !== undefined, of('amk_loop')[0]);
  const ended = of('amk_job').at(-1);
  check(`${name}: the job ended with a best`, ended?.state === 'done' && ended.result?.best_verdict?.correct === true, ended);
  check(`${name}: the report is there`, of('amk_orchestrate_report')[0]?.markdown?.includes('toy'), of('amk_orchestrate_report')[0]);
}

async function inFolder(body) {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'amk-agents-'));
  const env = { HOME: dir, PATH: process.env.PATH, AMK_WORKSPACE: path.join(dir, 'ws') };
  try {
    await body(dir, env);
  } catch (e) {
    check('no exception', false, e.stack);
  } finally {
    await run(amk, ['--workspace', env.AMK_WORKSPACE, 'serve', '--stop', '--force'], { env, cwd: dir, limit: 20_000 });
    fs.rmSync(dir, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}

// The project's own .mcp.json, with an ./amk that is the built program.
function project(dir) {
  fs.copyFileSync(new URL('../../../.mcp.json', import.meta.url), path.join(dir, '.mcp.json'));
  fs.writeFileSync(path.join(dir, 'amk'), `#!/bin/sh\nexec '${amk}' "$@"\n`, { mode: 0o755 });
}

await inFolder(async (dir, env) => {
  project(dir);
  const model = new StandIn(decide);
  const port = await model.listen();
  Object.assign(env, { ANTHROPIC_BASE_URL: `http://127.0.0.1:${port}`, ANTHROPIC_API_KEY: 'none', DISABLE_AUTOUPDATER: '1', CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1', ENABLE_TOOL_SEARCH: 'false' });
  const claude = path.join(bin, 'claude');
  const done = await run(claude, ['-p', 'optimise toy', '--mcp-config', '.mcp.json', '--strict-mcp-config', '--allowedTools', 'mcp__amk', '--output-format', 'json'], { env, cwd: dir });
  judge('Claude Code', model, done);
  // Exit 0 even when a server fails: the text says which. A project's servers need approval once, which the settings give.
  fs.mkdirSync(path.join(dir, '.claude'), { recursive: true });
  fs.writeFileSync(path.join(dir, '.claude', 'settings.local.json'), JSON.stringify({ enableAllProjectMcpServers: true }));
  fs.writeFileSync(path.join(dir, '.claude.json'), JSON.stringify({ projects: { [dir]: { hasTrustDialogAccepted: true, enabledMcpjsonServers: ['amk'] } } }));
  const list = await run(claude, ['mcp', 'list'], { env, cwd: dir });
  check('claude mcp list says connected', /amk:.*Connected/i.test(list.out), list.out + list.err);
  model.close();
});

await inFolder(async (dir, env) => {
  const model = new StandIn(decide);
  const port = await model.listen();
  env.CODEX_HOME = path.join(dir, 'codex');
  fs.mkdirSync(env.CODEX_HOME);
  fs.writeFileSync(path.join(env.CODEX_HOME, 'config.toml'), `model = "stand-in"\nmodel_provider = "stand-in"\n\n[model_providers.stand-in]\nname = "stand-in"\nbase_url = "http://127.0.0.1:${port}/v1"\nwire_api = "responses"\nrequires_openai_auth = false\n`);
  const set = await run(amk, ['setup', 'codex', '--write', '--yes'], { env, cwd: dir });
  check('amk setup codex writes its table', set.code === 0, set);
  // The table names the source tree's launcher; here the built program is meant, and its calls are approved beforehand.
  const file = path.join(env.CODEX_HOME, 'config.toml');
  fs.writeFileSync(file, fs.readFileSync(file, 'utf8').replace(/command = ".*"/, `command = ${JSON.stringify(amk)}`) + 'default_tools_approval_mode = "approve"\n\n[mcp_servers.amk.env]\nAMK_WORKSPACE = ' + JSON.stringify(env.AMK_WORKSPACE) + '\n');
  const done = await run(path.join(bin, 'codex'), ['exec', '--skip-git-repo-check', '--json', 'optimise toy'], { env, cwd: dir });
  judge('Codex', model, done);
  model.close();
});

console.log(`${passed} passed, ${failed} failed`);
process.exit(failed || !passed ? 1 : 0);
