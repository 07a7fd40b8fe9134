// What no client should send: every argument of every tool with every odd value, greetings of another shape, and peers that do not read. Each is answered in
// words or loses its connection; the daemon stays the same process, and what the campaign says before can be asked after.
import fs from 'node:fs';
import net from 'node:net';
import { createInterface } from 'node:readline';
import { equal, fixtures, ok, patience, test } from './harness.mjs';

// Every pair of argument and value, or a quarter of them, each value with some argument.
const everything = process.env.AMK_HOSTILE_ALL === '1';
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));

// An MCP client over stdio whose messages are any bytes. Answers in the order of the ids that are asked for.
class Client {
  constructor(ws) {
    this.child = ws.start(['--workspace', ws.ws, 'mcp']);
    this.child.stdin.on('error', () => {});
    this.waiting = new Map();
    this.id = 0;
    createInterface({ input: this.child.stdout }).on('line', (line) => {
      const m = JSON.parse(line);
      const unparsed = m.id == null && m.error ? this.waiting.keys().next().value : m.id;  // what cannot be read has no id: here the oldest
      const waits = this.waiting.get(unparsed);
      this.waiting.delete(unparsed);
      waits?.({ ...m, bytes: line.length });
    });
  }
  send(text) { this.child.stdin.write(text + '\n'); }
  ask(method, params) {
    const id = ++this.id;
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`no answer to ${method} ${params.slice(0, 200)}`)), 30_000 * patience);
      this.waiting.set(id, (m) => { clearTimeout(late); resolve(m); });
      this.send(`{"jsonrpc":"2.0","id":${id},"method":"${method}","params":${params}}`);
    });
  }
  async open() {
    const hello = await this.ask('initialize', '{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"hostile","version":"1"}}');
    ok(hello.result, 'it is greeted');
    this.send('{"jsonrpc":"2.0","method":"notifications/initialized"}');
    return this;
  }
  call(tool, args) { return this.ask('tools/call', `{"name":"${tool}","arguments":${args}}`); }
  close() { return new Promise((resolve) => { this.child.once('exit', resolve); this.child.stdin.end(); }); }
}

const deep = (n, open, close) => open.repeat(n) + close.repeat(n);
// What a reader of JSON takes…
const odd = [
  'null', 'true', '""', '" "', '"\\u0000"', '"a\\u0000b"', '"\\u202e"', '-1', '0', '-0.0', '0.5', '1e-320', '1e-10', '1e308', '9007199254740993',
  '9223372036854775808', '18446744073709551616', '[]', '{}', '{"":1}', '["e1","e1"]', '[null,"\\u0000"]', deep(60, '[', ']'),
  '"../../../etc/passwd"', '"/dev/zero"', '"/proc/self/environ"', '"$(id);%s%n"', '"toy@b9"', '"toy@int8@int8"', '"toy#"', '"det_gemm:fwd:0x0x0"', '"det_gemm:fwd:99999999999x99999999999x99999999999"',
  '"c0"', '"c18446744073709551617"', '"e-1"', '"NaN"', '"1e3"'];
// … and what it does not, or not for long. What cannot be read has no id to be answered by: these come alone.
const worse = ['"\\ud800"', `"${'x'.repeat(70_000)}"`, '1e400', '9'.repeat(400), '{"a":1,"a":2}', deep(600, '[', ']'), deep(600, '{"a":', '}').replace(':}', ':1}'), 'NaN', '-', '01', '"\\x"', '/*c*/1'];
const usual = {
  amk_propose: { model: 'toy' }, amk_eval: { model: 'toy', device: 'cpu', config: {}, wait_s: 5 }, amk_loop: { model: 'toy', device: 'cpu', budget: 1, wait_s: 5 },
  amk_autoresearch: { model: 'toy', device: 'cpu', iters: 1, wait_s: 5 }, amk_orchestrate_record: { status: 'revert', campaign: 'c1', config: {} }, amk_job: { job_id: 'j1' },
  amk_results_import: { file: '/nonexistent.tsv', source: 'x' },
};
const kinds = ['invalid_argument', 'not_found', 'unsupported', 'conflict', 'rejected', 'unavailable', 'io'];

test('every argument of every tool with odd values: an answer in words, and the campaign can be asked as before', async (ws) => {
  const client = await new Client(ws).open();
  const { result: { tools } } = await client.ask('tools/list', '{}');
  const judged = await client.call('amk_eval', '{"model":"toy","device":"cpu","config":{}}');
  equal(judged.result.structuredContent.campaign, 'c1', 'a campaign');
  const daemon = ws.daemonPid();
  let calls = 0, properties = 0;
  for (const { name, inputSchema } of tools) {
    for (const property of [...Object.keys(inputSchema.properties), 'no_such', '']) {
      const others = { ...usual[name] };
      delete others[property];
      const rest = JSON.stringify(others).slice(1, -1);
      const send = async (value) => {
        const answer = await client.call(name, `{${rest}${rest ? ',' : ''}${JSON.stringify(property)}:${value}}`);
        const where = `${name} with ${property}=${value.slice(0, 60)}: ${JSON.stringify(answer).slice(0, 400)}`;
        ok(answer.bytes < 24_000, `8 KB as text and as structure: ${where}`);
        if (answer.error) return ok([-32700, -32602, -32600].includes(answer.error.code) && answer.error.message, where);
        if (!answer.result.isError) return;
        const { error } = answer.result.structuredContent;
        ok(kinds.includes(error.kind) && error.message, where);
        ok(error.kind !== 'invalid_argument' || error.data.field !== undefined, `names a field: ${where}`);
        equal(JSON.parse(answer.result.content[0].text), answer.result.structuredContent, where);
      };
      const share = (values) => values.filter((_, i) => everything || (i + properties) % 4 === 0);
      properties++;
      const beside = share(odd), alone = share(worse);
      calls += beside.length + alone.length;
      for (let i = 0; i < beside.length; i += 12) await Promise.all(beside.slice(i, i + 12).map(send));
      for (const value of alone) await send(value);
      for (const [tool, args] of [['amk_orchestrate_status', '{"campaign":"c1"}'], ['amk_orchestrate_next', '{}'], ['amk_results', '{"limit":5}']]) {
        const { result } = await client.call(tool, args);
        ok(!result.isError, `${tool} after ${name} with ${property}: ${JSON.stringify(result).slice(0, 300)}`);
      }
    }
  }
  ok(calls > (everything ? 3000 : 700), `${calls} calls`);
  for (const [tool, args] of [['amk_doctor', '{}'], ['amk_orchestrate_report', '{"campaign":"c1"}'], ['amk_eval', '{"model":"toy","device":"cpu","config":{}}']])
    ok(!(await client.call(tool, args)).result.isError, `${tool} at the end`);
  equal(ws.daemonPid(), daemon, 'the same daemon');
  await client.close();
  ws.killDaemon('SIGTERM');
  for (let i = 0; i < 200 * patience && ws.daemonPid(); i++) await sleep(20);
  equal(ws.amk(['orchestrate', 'status', '--campaign', 'c1']).code, 0, 'and in the next daemon');
});

// Sends to the daemon's socket itself; resolves with all that it said until it was silent or hung up.
const tell = (ws, text, { half = false, quiet = 300 * patience } = {}) => new Promise((resolve) => {
  const socket = net.connect({ path: `${ws.ws}/daemon.sock`, allowHalfOpen: true });
  let said = '', timer;
  const end = () => { clearTimeout(timer); socket.destroy(); resolve(said); };
  const wait = () => { clearTimeout(timer); timer = setTimeout(end, quiet); };
  socket.on('data', (d) => { said += d; wait(); }).on('error', end).on('end', end);
  socket.on('connect', () => { socket.write(text); if (half) socket.end(); wait(); });
});

test('greetings and orders of another shape are refused in words or end their connection, not the daemon', async (ws) => {
  equal(ws.amk(['orchestrate', 'status']).code, 0, 'a daemon runs');
  const daemon = ws.daemonPid();
  const orders = [1, null, 'x', [], {}, { info: 1 }, { info: 'yes' }, { stop: 1 }, { stop: 'now', force: [] }, { stop: false, force: true }, { http: 1 }, { http: '127.0.0.1:x' }, { http: '127.0.0.1:0', no_token: 'no' },
    { http: '8.8.8.8:99999' }, { http: '' }];
  const told = await Promise.all(orders.map((control) => tell(ws, JSON.stringify({ amk_client: { control } }) + '\n')));
  told.forEach((said, i) => ok(said.split('\n').filter(Boolean).some((l) => JSON.parse(l).amk_daemon?.control?.error?.message), `order ${JSON.stringify(orders[i])}: ${said}`));
  const ping = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n';
  const greetings = ['{"amk_client":1}', '{"amk_client":{"cwd":7}}', '{"amk_client":{"cwd":"a\\u0000b"}}', `{"amk_client":{"cwd":"${'/x'.repeat(20_000)}"}}`, '{"amk_client":', '\u0000\u0000', '[[[[', ''];
  for (const said of await Promise.all(greetings.map((g) => tell(ws, `${g}\n${ping}`)))) ok(said.includes('"result":{}') || said.includes('"error"'), `a ping after it: ${said.slice(0, 300)}`);
  await Promise.all(['', ping, '{"jsonrpc"', 'x'.repeat(100_000)].map((text) => tell(ws, text, { half: true })));
  equal(ws.daemonPid(), daemon, 'the same daemon');
  equal(ws.amk(['orchestrate', 'status']).code, 0, 'which serves on');
});

test('who does not read what he asked for is not asked for more: nobody waits for him, and nothing is kept for him without end', async (ws) => {
  equal(ws.amk(['eval', 'toy', '--device', 'cpu']).code, 0, 'a daemon with something to tell');
  const daemon = ws.daemonPid();
  const resident = () => Number(fs.readFileSync(`/proc/${daemon}/status`, 'utf8').match(/VmRSS:\s+(\d+)/)[1]);
  const before = resident();
  const hello = '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"deaf","version":"1"}}}\n';
  const asked = 2500;  // of some 20 KB each: 50 MB a client
  const flood = hello + Array.from({ length: asked }, (_, i) => `{"jsonrpc":"2.0","id":${i + 1},"method":"tools/list","params":{}}\n`).join('');
  const deaf = Array.from({ length: 4 }, () => net.connect({ path: `${ws.ws}/daemon.sock` }));
  for (const s of deaf) s.on('error', () => {}).pause().write(flood);
  for (let i = 0; i < 10; i++) equal(ws.amk(['orchestrate', 'status']).code, 0, 'others are served meanwhile');
  for (let last = 0, now = resident(); now > last; last = now, now = resident()) await sleep(300);
  ok(patience > 1 || resident() - before < 60_000, `${before} KiB resident before, ${resident()} with four that do not read`);
  // One reads after all: everything that he asked for, in order.
  const answers = await new Promise((resolve, reject) => {
    const ids = [];
    setTimeout(() => reject(new Error(`${ids.length} answers`)), 60_000 * patience).unref();
    createInterface({ input: deaf[0] }).on('line', (line) => {
      const m = JSON.parse(line);
      if (m.result?.tools) ids.push(m.id);
      if (ids.length === asked) resolve(ids);
    });
    deaf[0].resume();
  });
  equal(answers, Array.from({ length: asked }, (_, i) => i + 1), 'ids in order');
  for (const s of deaf) s.destroy();
  equal(ws.amk(['orchestrate', 'status']).code, 0, 'it serves on');
  equal(ws.daemonPid(), daemon, 'the same daemon');
});

test('a checkpoint that is written over, cut or replaced under the daemon: opened anew, never judged as two models, never its end', async (ws) => {
  const model = `${ws.dir}/model`, weights = `${model}/model.safetensors`;
  fs.cpSync(`${fixtures}/llama-gqa`, model, { recursive: true });
  const whole = fs.readFileSync(weights);
  const evaluate = (config = {}) => ws.amk(['eval', model, '--device', 'cpu', '--config', JSON.stringify(config)]);
  const judged = (what, config) => equal([evaluate(config).json?.status, evaluate(config).json?.correct], ['ok', true], what);
  judged('as it came');
  const daemon = ws.daemonPid();
  // Other weights of the same size, written into the same file: small numbers stay small, in fp32 as in bf16.
  const other = Buffer.from(whole), data = 8 + Number(whole.readBigUInt64LE(0));
  for (let i = data; i < other.length; i += 512) other[i] ^= 0x05;
  fs.writeFileSync(weights, other);
  judged('written over in place');
  judged('and another config of it', { pipelining_depth: 1 });
  fs.writeFileSync(`${weights}.new`, whole);
  fs.renameSync(`${weights}.new`, weights);
  judged('replaced');
  // Cut while a search reads it, again and again.
  for (let round = 0; round < (everything ? 8 : 2); round++) {
    const job = ws.amk(['loop', model, '--device', 'cpu', '--budget', '5000', '--seed', String(round), '--detach']).json;
    await sleep(150 * (round + 1));
    fs.truncateSync(weights, Math.floor(whole.length / (round % 4 + 2)));
    const ended = ws.amk(['job', job.job_id, '--wait', '40']).json;
    ok(['failed', 'done'].includes(ended?.state), `the search ends: ${JSON.stringify(ended).slice(0, 300)}`);
    if (ended.state === 'failed') ok(['unavailable', 'io', 'corrupt'].includes(ended.error.kind), `and says why: ${JSON.stringify(ended.error)}`);
    equal(ws.daemonPid(), daemon, 'the same daemon');
    const refused = evaluate();
    ok(refused.code === 3 || refused.code === 2, `a cut file is refused: ${refused.out.slice(0, 300)}`);
    fs.writeFileSync(weights, whole);
    judged('whole again');
  }
  const rows = ws.amk(['results', '--limit', '200']).json.rows;
  equal(rows.filter((r) => r.outcome === 'failed' || r.outcome === 'crash').length, 0, 'no candidate was blamed');
});
