// The least that answers MCP over HTTP, or with --stdio over its own pipes: every call gets the same constant. What a client measures against it is the
// client's own time. Usage: node null-server.mjs ANSWERS [--stdio]; ANSWERS: a JSON file with the real server's answers to tools/list and tools/call, since a
// client reads the list, compiles the tool's schemas at the first calls and checks every answer against them.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';

const answers = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const answer = ({ method, params }) => {
  if (method === 'initialize')
    return { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'null', version: '1' } };
  return answers[method];
};
const reply = (message) => JSON.stringify({ jsonrpc: '2.0', id: message.id, result: answer(message) });
if (process.argv[3] === '--stdio') {
  createInterface({ input: process.stdin }).on('line', (line) => {
    const message = JSON.parse(line);
    if (message.id !== undefined) process.stdout.write(`${reply(message)}\n`);
  });
} else {
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (part) => { body += part; });
    request.on('end', () => {
      if (request.method !== 'POST') return response.writeHead(405).end();
      const message = JSON.parse(body);
      if (message.id === undefined) return response.writeHead(202).end();
      const text = reply(message);
      return response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) }).end(text);
    });
  });
  server.listen(0, '127.0.0.1', () => console.log(JSON.stringify({ url: `http://127.0.0.1:${server.address().port}/mcp` })));
}
process.on('SIGTERM', () => process.exit(0));
