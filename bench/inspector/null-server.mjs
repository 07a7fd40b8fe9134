// The least that answers MCP over HTTP, or with --stdio over its own pipes: every call gets the same constant. What a client measures against it is the
// client's own time.
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';

const tool = { name: 'amk_orchestrate_status', description: 'nothing', inputSchema: { type: 'object', properties: {} } };
const answer = ({ method, params }) => {
  if (method === 'initialize')
    return { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'null', version: '1' } };
  if (method === 'tools/list') return { tools: [tool] };
  return { content: [{ type: 'text', text: '{"campaigns":[]}' }], structuredContent: { campaigns: [] } };
};
const reply = (message) => JSON.stringify({ jsonrpc: '2.0', id: message.id, result: answer(message) });
if (process.argv[2] === '--stdio') {
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
