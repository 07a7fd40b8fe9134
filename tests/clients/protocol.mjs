// Both official clients against the server with fake tools: every feature of the protocol engine as real clients use it.
// Usage: node protocol.mjs PATH_TO_FAKE_AMK
import { eventually, processesWith, withEachClient } from './harness.mjs';

const fake = process.argv[2];
await withEachClient(run);

async function run(c, connect, w) {
  const open = () => connect(fake, ['mcp', '--workspace', w.path]);
  let peer = await open();
  c.equal('era', peer.era, c.name.includes('legacy') ? 'legacy' : 'modern');
  c.equal('server', peer.client.getServerVersion()?.name, 'fake');
  c.that('instructions', peer.client.getInstructions()?.includes('echo'));

  const tools = await peer.tools();
  c.that('tools are listed with schemas and annotations', tools.every((t) => t.inputSchema.type === 'object' && t.annotations));
  const hi = await peer.call('echo', { text: 'hi', count: '3', tags: '["a"]' });
  c.equal('structured result', hi.structuredContent, { text: 'hi', count: 3, tags: ['a'] });
  c.equal('text is the same', JSON.parse(hi.content[0].text), hi.structuredContent);
  // These clients check structuredContent against outputSchema, failures included.
  const wrong = await peer.call('echo', { text: 'hi', count: 99 });
  c.that('an input error is a result that names the field', wrong.isError && wrong.content[0].text.includes('count is 99; accepted: integer from 1 to 10'), wrong);
  const rejected = await peer.call('fails');
  c.equal('a handler error keeps its data', rejected.structuredContent.error.data, { witness: { task: 7 } });
  await c.rejects('an unknown tool', peer.call('no_such'), /no_such/);

  const progress = [];
  await peer.call('slow', { seconds: 0.5, steps: 4 }, { onprogress: (p) => progress.push(p.progress) });
  c.equal('progress', progress, [1, 2, 3, 4]);
  const abort = new AbortController();
  const cancelled = peer.call('slow', { seconds: 600, steps: 6000 }, { signal: abort.signal, onprogress: () => abort.abort('enough') });
  await c.rejects('a cancelled call', cancelled, /enough|abort|cancel/i);
  c.equal('the connection goes on', (await peer.call('counter')).structuredContent, { n: 1 });

  c.equal('resources', (await peer.resources()).map((r) => r.uri), ['fake://static', 'fake://bytes']);
  c.equal('read', (await peer.read('fake://static'))[0].text, 'fixed');
  c.equal('bytes', (await peer.read('fake://bytes'))[0].blob, 'AP8=');
  c.equal('template', (await peer.read('fake://items/7'))[0].text, 'item 7');
  await c.rejects('a missing resource', peer.read('fake://no'), /fake:\/\/no/);
  c.equal('prompt', (await peer.prompt('greet', { who: 'you' })).messages[0].content.text, 'hello you');
  c.equal('completion', await peer.complete({ type: 'ref/prompt', name: 'greet' }, 'who', 'w'), ['world']);
  c.equal('completion of a template', (await peer.complete({ type: 'ref/resource', uri: 'fake://items/{id}' }, 'id', '14')).length, 11);

  // A job outlives the shim that started it, killed without warning.
  const job = (await peer.call('job', { seconds: 1, wait_s: 0, request_key: 'k' })).structuredContent;
  process.kill(peer.pid(), 'SIGKILL');
  c.that('the killed shim is gone', await eventually(() => processesWith('mcp', w.path).length === 0));
  peer = await open();
  c.equal('the state is as it was', (await peer.call('counter')).structuredContent, { n: 2 });
  c.equal('the job went on', (await peer.call('job_wait', { job_id: job.job_id, wait_s: 20 })).structuredContent.state, 'done');

  // The daemon dies under a call: the call fails, the next one works.
  const lost = peer.call('slow', { seconds: 600 });
  setTimeout(() => process.kill(processesWith('serve', w.path)[0], 'SIGKILL'), 200);
  await c.rejects('a call that lost its daemon', lost, /daemon went away/);
  c.equal('the next call starts another daemon', (await peer.call('counter')).structuredContent, { n: 1 });

  const begin = Date.now();
  await peer.close();
  c.that('the shim leaves with its client', await eventually(() => processesWith('mcp', w.path).length === 0), Date.now() - begin);
}
