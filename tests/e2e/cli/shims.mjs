// Fifty shims of the real program, ended in every way, some in the middle of a call: none stays, and the daemon serves on.
import fs from 'node:fs';
import { equal, ok, test } from './harness.mjs';

const sleep = (ms) => new Promise((r) => setTimeout(r, ms));

function shimsOf(ws) {
  return fs.readdirSync('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      const words = fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
      return words.includes('mcp') && words.includes(ws.ws);
    } catch { return false; }
  }).length;
}

test('fifty shims ended in every way: no orphan, no lost campaign', async (ws) => {
  const before = ws.amk(['loop', 'toy', '--budget', '4', '--device', 'cpu']).json;
  const children = [];
  for (let i = 0; i < 50; i++) {
    const child = ws.start(['--workspace', ws.ws, 'mcp']);
    child.stdout.on('error', () => {});
    child.stdin.on('error', () => {});
    child.stdin.write(JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 't', version: '0' } } }) + '\n');
    if (i % 4 >= 2) child.stdin.write(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'amk_eval', arguments: { model: 'small', gpu: 'h100', device: 'cpu', config: {} } } }) + '\n');
    children.push(child);
  }
  await sleep(500);
  equal(shimsOf(ws), 50, 'shims alive before');
  for (const [i, child] of children.entries()) {
    if (i % 6 === 0) child.kill('SIGKILL');
    if (i % 6 === 1) child.kill('SIGTERM');
    if (i % 6 === 2) child.stdin.end();
    if (i % 6 === 3) { child.stdout.destroy(); child.stdin.write(JSON.stringify({ jsonrpc: '2.0', id: 2, method: 'ping' }) + '\n'); }
    if (i % 6 === 4) child.kill('SIGINT');
    if (i % 6 === 5) child.kill('SIGHUP');
  }
  for (let i = 0; i < 200 && shimsOf(ws) > 0; i++) await sleep(50);
  equal(shimsOf(ws), 0, 'shims left');
  const status = ws.amk(['orchestrate', 'status', '--campaign', before.campaign]);
  equal(status.code, 0, 'the daemon answers');
  equal(Object.values(status.json.counts).reduce((a, b) => a + b, 0), 4, 'experiments of the loop');
  ok(ws.amk(['eval', 'toy', '--device', 'cpu']).code === 0, 'and judges');
});
