// The official conformance suite against a served build, its results against expected-failures.yaml; then the inspector's lint and load.
// Usage: node run.mjs PROGRAM ARGUMENTS… (prints {"url": …} on its first line and serves until SIGTERM), or with --inspect as the
// first argument: node run.mjs --inspect PROGRAM ARGUMENTS… (an MCP server on stdio).
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const modules = join(here, 'node_modules', '@modelcontextprotocol');
let passed = 0;
let failed = 0;
const check = (ok, what) => {
  if (ok) passed += 1;
  else { failed += 1; console.log(`FAILED ${what}`); }
};

const program = process.argv.slice(2);
if (program[0] === '--inspect') inspect(program.slice(1));
else await conformance(program);
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 && passed > 0 ? 0 : 1);

// name -> reason, per revision. The file is YAML of two levels only.
function expectations() {
  const out = {};
  let revision;
  for (const line of readFileSync(join(here, 'expected-failures.yaml'), 'utf8').split('\n')) {
    if (line.startsWith('#') || line.trim() === '') continue;
    const [, indent, key, value] = line.match(/^( *)([^:]+): ?(.*)$/);
    if (indent === '') out[(revision = key)] = {};
    else out[revision][key] = value;
  }
  return out;
}

async function conformance(command) {
  const server = spawn(command[0], command.slice(1), { stdio: ['pipe', 'pipe', 'inherit'] });
  const first = await new Promise((resolve) => {
    createInterface({ input: server.stdout }).once('line', resolve);
    server.once('exit', () => resolve('{}'));
  });
  const { url } = JSON.parse(first);
  check(url, `the server prints its address, not: ${first}`);
  if (!url) return;
  for (const [revision, expected] of Object.entries(expectations())) {
    const out = mkdtempSync(join(tmpdir(), 'amk-conformance-'));
    const run = spawnSync(process.execPath, [join(modules, 'conformance/dist/index.js'), 'server', '--url', url, '--requirements', revision, '-o', out],
      { encoding: 'utf8', timeout: 600_000 });
    // One folder a scenario: server-NAME-TIMESTAMP/checks.json.
    const scenarios = {};
    for (const folder of readdirSync(out)) {
      const name = folder.replace(/^server-/, '').replace(/-\d{4}-\d\d-\d\dT[\d-]+Z$/, '');
      scenarios[name] = JSON.parse(readFileSync(join(out, folder, 'checks.json'), 'utf8'));
    }
    rmSync(out, { recursive: true, force: true });
    let checks = 0;
    let warnings = 0;
    check(Object.keys(scenarios).length >= 30, `${revision}: the suite ran (${run.stderr?.slice(-400)})`);
    for (const [name, results] of Object.entries(scenarios)) {
      const bad = results.filter((r) => r.status === 'FAILURE');
      checks += results.filter((r) => r.status === 'SUCCESS').length;
      warnings += results.filter((r) => r.status === 'WARNING').length;
      if (expected[name]) check(bad.length > 0, `${revision} ${name} passes now: take it out of expected-failures.yaml`);
      else check(bad.length === 0, `${revision} ${name}: ${bad.map((r) => `${r.id}: ${r.errorMessage}`).join('; ').slice(0, 800)}`);
    }
    for (const name of Object.keys(expected)) {
      check(name in scenarios, `${revision} ${name} of expected-failures.yaml is no scenario of the suite`);
      check(expected[name].length > 10, `${revision} ${name} has a reason`);
    }
    check(warnings === 0, `${revision}: ${warnings} warnings`);
    console.log(`${revision}: ${Object.keys(scenarios).length} scenarios, ${checks} checks passed, ${Object.keys(expected).length} scenarios expected to fail`);
  }
  server.kill('SIGTERM');
  const gone = await new Promise((resolve) => {
    server.once('exit', () => resolve(true));
    setTimeout(() => resolve(false), 10_000);
  });
  check(gone, 'the server ends when told to');
  if (!gone) server.kill('SIGKILL');
}

// The inspector's own portability lint of the tool list, in both eras, and its load mode.
function inspect(command) {
  const home = mkdtempSync(join(tmpdir(), 'amk-inspector-'));
  const cli = (...args) => spawnSync(process.execPath, [join(modules, 'inspector/clients/launcher/build/index.js'), '--cli', ...command, ...args],
    { encoding: 'utf8', timeout: 300_000, env: { ...process.env, HOME: home } });
  for (const era of ['legacy', 'modern']) {
    const list = cli('--method', 'tools/list', '--strict', '--protocol-era', era);
    check(list.status === 0, `inspector lint (${era}) is clean: exit ${list.status}: ${list.stderr.slice(-800)}`);
  }
  const load = cli('--method', 'tools/call', '--tool-name', 'amk_orchestrate_status', '--load', '--load-requests', '500', '--load-concurrency', '10');
  let report = {};
  try { report = JSON.parse(load.stdout); } catch { /* said below */ }
  check(load.status === 0 && report.errorRate === 0, `inspector load: exit ${load.status}: ${(load.stderr + load.stdout).slice(-800)}`);
  console.log(`inspector load, 500 status calls at concurrency 10: ${JSON.stringify(report.latencyMs)} ms`);
  rmSync(home, { recursive: true, force: true });
}
