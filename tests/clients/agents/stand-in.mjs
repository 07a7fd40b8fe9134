// A model for coding agents that run without an account: it speaks the Anthropic Messages API (Claude Code) and the OpenAI Responses API (Codex) on
// loopback, and its "thoughts" are a function from what it was shown to the next tool call. What it was shown is kept for the test.
import http from 'node:http';

const textOf = (content) => (typeof content === 'string' ? content : (content ?? []).map((c) => c.text ?? '').join(''));

// `decide(results)`: results so far, in order, as {tool, args, text, isError}; returns {tool, args} or null when it is finished.
export class StandIn {
  results = [];  // {tool, args, text, isError} as the model saw them; isError undefined where the API has no such flag
  tools = [];    // names of amk's tools that the model was offered
  pending = null;
  constructor(decide) { this.decide = decide; }

  async listen() {
    this.server = http.createServer((req, res) => {
      const chunks = [];
      req.on('data', (d) => chunks.push(d));
      req.on('end', () => this.answer(req, res, Buffer.concat(chunks).toString('utf8')));
    });
    await new Promise((resolve) => this.server.listen(0, '127.0.0.1', resolve));
    return this.server.address().port;
  }
  close() { this.server.closeAllConnections(); this.server.close(); }

  answer(req, res, text) {
    let body = {};
    try { body = JSON.parse(text); } catch { /* no request of a model */ }
    if (req.method === 'POST' && /\/v1\/messages(\?|$)/.test(req.url)) return this.anthropic(body, res);
    if (req.method === 'POST' && req.url.includes('/responses')) return this.openai(body, res);
    res.setHeader('content-type', 'application/json');
    res.statusCode = req.url.includes('count_tokens') ? 200 : 404;
    res.end(JSON.stringify({ input_tokens: 1 }));
  }

  // The next call, once the result of the last one has been shown.
  next(shown) {
    if (this.pending) {
      const result = shown.get(this.pending.id);
      if (result === undefined) return this.pending;  // asked again without the result: the same answer
      this.results.push({ tool: this.pending.tool, args: this.pending.args, ...result });
      this.pending = null;
    }
    const call = this.decide(this.results);
    this.pending = call ? { ...call, id: `call_${this.results.length + 1}` } : null;
    return this.pending;
  }

  anthropic(body, res) {
    const mine = (body.tools ?? []).filter((t) => t.name.startsWith('mcp__amk__'));
    if (mine.length) this.tools = mine.map((t) => t.name.slice('mcp__amk__'.length));
    const shown = new Map();
    for (const message of body.messages ?? [])
      for (const part of Array.isArray(message.content) ? message.content : [])
        if (part.type === 'tool_result')
          shown.set(part.tool_use_id, { text: textOf(part.content), isError: part.is_error === true });
    const call = mine.length ? this.next(shown) : null;  // side questions (titles, summaries) come without tools
    const block = call ? { type: 'tool_use', id: call.id, name: `mcp__amk__${call.tool}`, input: {} } : { type: 'text', text: '' };
    const delta = call ? { type: 'input_json_delta', partial_json: JSON.stringify(call.args) } : { type: 'text_delta', text: 'finished' };
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    const send = (type, data) => res.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
    send('message_start', { message: { id: 'msg', type: 'message', role: 'assistant', model: body.model ?? 'm', content: [], stop_reason: null, stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 } } });
    send('content_block_start', { index: 0, content_block: block });
    send('content_block_delta', { index: 0, delta });
    send('content_block_stop', { index: 0 });
    send('message_delta', { delta: { stop_reason: call ? 'tool_use' : 'end_turn', stop_sequence: null }, usage: { output_tokens: 1 } });
    send('message_stop', {});
    res.end();
  }

  openai(body, res) {
    const mine = (body.tools ?? []).find((t) => t.type === 'namespace' && t.name === 'mcp__amk');
    if (mine) this.tools = mine.tools.map((t) => t.name);
    const shown = new Map();
    for (const item of body.input ?? [])
      if (item.type === 'function_call_output')
        shown.set(item.call_id, { text: textOf(item.output).replace(/^Wall time: [^\n]*\nOutput:\n/, '') });  // Codex's own two lines before the result
    const call = mine ? this.next(shown) : null;
    const item = call
      ? { type: 'function_call', id: `f${call.id}`, call_id: call.id, namespace: 'mcp__amk', name: call.tool, arguments: JSON.stringify(call.args), status: 'completed' }
      : { type: 'message', id: 'm', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: 'finished', annotations: [] }] };
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    const send = (type, data) => res.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
    const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2, input_tokens_details: { cached_tokens: 0 }, output_tokens_details: { reasoning_tokens: 0 } };
    send('response.created', { response: { id: 'r', object: 'response', status: 'in_progress', output: [] } });
    send('response.output_item.added', { output_index: 0, item });
    send('response.output_item.done', { output_index: 0, item });
    send('response.completed', { response: { id: 'r', object: 'response', status: 'completed', output: [item], usage } });
    res.end();
  }
}
