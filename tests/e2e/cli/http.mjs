// amk serve --http: the same tools over Streamable HTTP, for those who hold the token.
import fs from 'node:fs';
import { equal, ok, patience, test } from './harness.mjs';

test('serve --http: token, origin and a tool call', async (ws) => {
  const child = ws.start(['serve', '--http', '127.0.0.1:0', '--idle-exit', '60']);
  try {
    const { url, token_file: tokenFile } = JSON.parse(await new Promise((resolve) => child.stdout.once('data', (d) => resolve(String(d)))));
    equal(fs.statSync(tokenFile).mode & 0o777, 0o600, 'token file mode');
    const token = fs.readFileSync(tokenFile, 'utf8').trim();
    const meta = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientCapabilities': {} };
    const call = (headers, params = { name: 'amk_doctor', arguments: {}, _meta: meta }) => fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream', 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'amk_doctor', ...headers },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
    });
    equal((await call({})).status, 401, 'without a token');
    equal((await call({ authorization: 'Bearer wrong' })).status, 401, 'with a wrong token');
    equal((await call({ authorization: `Bearer ${token}`, origin: 'http://evil.example' })).status, 403, 'from another origin');
    const reply = await call({ authorization: `Bearer ${token}` });
    equal(reply.status, 200, 'with the token');
    const text = await reply.text();
    ok(text.includes('"targets"') && text.includes('rtx5090'), text.slice(0, 200));
    equal(ws.amk(['doctor']).code, 0, 'the socket serves beside it');
    equal((await call({ authorization: `Bearer ${token}` }, { name: `no_such_tool_${token}`, arguments: { hypothesis: token }, _meta: meta })).status, 400, 'a header that contradicts the body');
    // What is secret stands in no file of the workspace but its own: logs, database, exports, sockets' folders.
    const holders = fs.readdirSync(ws.ws, { recursive: true }).map((name) => `${ws.ws}/${name}`).filter((file) => fs.statSync(file).isFile() && fs.readFileSync(file).includes(token));
    equal(holders, [tokenFile], 'files that hold the token');
    ok(fs.readdirSync(`${ws.ws}/logs`).length > 0, 'there is a log');
  } finally {
    child.kill('SIGTERM');
  }
});

test('dashboard: an address whose token opens the data, from a daemon that it starts', async (ws) => {
  const first = ws.amk(['dashboard']);
  equal(first.code, 0, first.err);
  const url = new URL(first.json.url);
  equal([url.hostname, url.pathname, first.json.opened], ['127.0.0.1', '/dashboard', false], 'address');
  equal(ws.amk(['dashboard']).json.url, first.json.url, 'asked again');
  const token = new URLSearchParams(url.hash.slice(1)).get('token');
  equal(token, fs.readFileSync(`${ws.ws}/http.token`, 'utf8').trim(), 'token');
  const state = (headers) => fetch(`${url.origin}/dashboard/api/state`, { headers });
  equal((await state({})).status, 401, 'without the token');
  equal((await (await state({ authorization: `Bearer ${token}` })).json()).campaigns, [], 'no campaign yet');
  const page = await fetch(`${url.origin}/dashboard`);
  ok([200, 503].includes(page.status), 'the page, or how to build it');
  ok(page.headers.get('content-security-policy').includes("default-src 'none'"), 'policy');
  equal(ws.amk(['dashboard', '--port', '99999']).code, 2, 'no such port');
  const other = ws.amk(['dashboard', '--port', '1']);
  equal([other.code, other.json.url], [0, first.json.url], 'a daemon keeps its address');
  ok(other.err.includes('already'), other.err);

  // A page that watches does not keep the store from being closed when the daemon is stopped.
  const events = await fetch(`${url.origin}/dashboard/api/events`, { headers: { authorization: `Bearer ${token}` } });
  ok((await events.body.getReader().read()).value.length > 0, 'a page watches');
  const daemon = ws.daemonPid();
  ok(fs.existsSync(`${ws.ws}/store.sqlite-wal`), 'the store is open');
  equal(ws.amk(['serve', '--stop', '--force']).code, 0, 'stopped');
  for (let i = 0; i < 500 * patience && fs.existsSync(`/proc/${daemon}`); i++) await new Promise((r) => setTimeout(r, 20));
  equal(fs.existsSync(`${ws.ws}/store.sqlite-wal`), false, 'and closed, its journal in the database');
});
