// Counting checks, and the two official clients behind one face.
import { Client as LegacyClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as LegacyStdio } from '@modelcontextprotocol/sdk/client/stdio.js';
import { Client as ModernClient } from '@modelcontextprotocol/client';
import { StdioClientTransport as ModernStdio } from '@modelcontextprotocol/client/stdio';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { endProcessesOf } from '../support/leftovers.mjs';
import { patience } from '../support/patience.mjs';

export class Checks {
  passed = 0;
  failed = 0;
  constructor(name) { this.name = name; }
  that(what, condition, detail) {
    if (condition) { this.passed += 1; return true; }
    this.failed += 1;
    console.log(`FAILED ${this.name}: ${what}${detail === undefined ? '' : `: ${JSON.stringify(detail).slice(0, 600)}`}`);
    return false;
  }
  equal(what, got, wanted) { return this.that(what, isDeepStrictEqual(got, wanted), { got, wanted }); }
  async rejects(what, promise, pattern) {
    try { await promise; } catch (e) { return this.that(what, pattern.test(String(e.message)), e.message); }
    return this.that(what, false, 'did not fail');
  }
}

// Both SDKs, by the operations that the tests need. `era` is what was really negotiated.
export const clients = {
  'sdk 1.32.2 (legacy)': async (command, args, env) => {
    const client = new LegacyClient({ name: 'amk-tests', version: '1' }, { capabilities: { elicitation: {} } });
    const transport = new LegacyStdio({ command, args, env, stderr: 'pipe' });
    await client.connect(transport);
    return wrap(client, transport, 'legacy');
  },
  'client 2.4.0 (2026-07-28)': async (command, args, env) => {
    const client = new ModernClient({ name: 'amk-tests', version: '1' }, { capabilities: {}, versionNegotiation: { mode: 'auto' } });
    const transport = new ModernStdio({ command, args, env, stderr: 'pipe' });
    await client.connect(transport);
    return wrap(client, transport, client.getProtocolEra());
  },
};

function wrap(client, transport, era) {
  return {
    client,
    era,
    pid: () => transport.pid,
    tools: async () => (await client.listTools()).tools,
    resources: async () => (await client.listResources()).resources,
    templates: async () => (await client.listResourceTemplates()).resourceTemplates,
    prompts: async () => (await client.listPrompts()).prompts,
    prompt: async (name, args) => client.getPrompt({ name, arguments: args }),
    complete: async (ref, name, value) => (await client.complete({ ref, argument: { name, value } })).completion.values,
    read: async (uri) => (await client.readResource({ uri })).contents,
    // The whole result; progress goes to `onprogress`.
    call: async (name, args = {}, options = {}) =>
      era === 'legacy'
        ? client.callTool({ name, arguments: args }, undefined, { timeout: 120_000 * patience, resetTimeoutOnProgress: true, ...options })
        : client.callTool({ name, arguments: args }, { timeout: 120_000 * patience, resetTimeoutOnProgress: true, ...options }),
    close: () => client.close(),
  };
}

export function workspace() {
  const path = mkdtempSync(join(tmpdir(), 'amk-clients-'));
  return { path, remove: () => { endProcessesOf(path); rmSync(path, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 }); } };
}

// Processes with all of these among their arguments.
export function processesWith(...words) {
  const found = [];
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const args = readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0');
      if (words.every((w) => args.includes(w))) found.push(Number(name));
    } catch { /* ended meanwhile */ }
  }
  return found;
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export async function eventually(condition, ms = 20_000) {
  const until = Date.now() + ms * patience;
  while (!condition()) {
    if (Date.now() > until) return false;
    await sleep(10);
  }
  return true;
}

export function finish(all) {
  const passed = all.reduce((n, c) => n + c.passed, 0);
  const failed = all.reduce((n, c) => n + c.failed, 0);
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed === 0 && passed > 0 ? 0 : 1);
}

// `run(checks, connect, workspace)` with each of the clients, then finish().
export async function withEachClient(run) {
  const all = [];
  for (const [name, connect] of Object.entries(clients)) {
    const c = new Checks(name);
    all.push(c);
    const w = workspace();
    try {
      await run(c, connect, w);
    } catch (e) {
      c.that('no exception', false, e.stack);
    }
    w.remove();
  }
  finish(all);
}
