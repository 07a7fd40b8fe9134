// Builds the documentation site: every page of docs/, and a reference made from the program itself (tools from tools/list, verbs from --help).
// Usage: node build.mjs AMK OUT. Fails on a link to a page or a heading that is not there. Prints "N pages".
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const { default: MarkdownIt } = await import('markdown-it').catch(() => {
  console.error('markdown-it is not installed; first: npm ci --prefix docs/site');
  process.exit(3);
});

const [amk, out] = process.argv.slice(2).map((p) => path.resolve(p));
const docs = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
const markdown = new MarkdownIt({ html: false, linkify: false });
const slug = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}\s_-]/gu, '').trim().replace(/\s+/g, '-');
markdown.renderer.rules.heading_open = (tokens, i) => `<${tokens[i].tag} id="${slug(tokens[i + 1].content)}">`;
// Links between pages of the folder become links between pages of the site.
markdown.renderer.rules.link_open = (tokens, i, options, env, self) => {
  const href = tokens[i].attrGet('href');
  if (!/^[a-z]+:/.test(href)) {
    env.links.push(href);
    tokens[i].attrSet('href', href.replace(/\.md(?=#|$)/, '.html'));
  }
  return self.renderToken(tokens, i, options);
};

const sections = {
  Tutorial: ['tutorial'],
  'How to': ['how-to', 'playbook'],
  Reference: ['reference-tools', 'reference-verbs', 'schedule', 'program', 'protocol', 'daemon', 'store', 'models', 'campaign'],
};
function run(args, input = '') {
  const r = spawnSync(amk, args, { input, encoding: 'utf8', timeout: 60_000, maxBuffer: 64 << 20 });
  if (r.status !== 0) throw new Error(`amk ${args.join(' ')}: exit ${r.status}: ${r.stderr}`);
  return r.stdout;
}

const cell = (text) => String(text ?? '').replaceAll('|', '\\|').replaceAll('\n', ' ');
function typeOf(s) {
  if (s.enum) return s.enum.map((v) => `\`${JSON.stringify(v)}\``).join(', ');
  return Array.isArray(s.type) ? s.type.join(' or ') : s.type ?? '';
}
function toolsReference() {
  const workspace = fs.mkdtempSync('/tmp/amk-site-');
  const lines = [
    { jsonrpc: '2.0', id: 0, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'site', version: '0' } } },
    { jsonrpc: '2.0', method: 'notifications/initialized' },
    { jsonrpc: '2.0', id: 1, method: 'tools/list' },
  ];
  const replies = run(['--workspace', workspace, '--no-daemon', 'mcp'], lines.map((l) => JSON.stringify(l)).join('\n') + '\n').trim().split('\n').map((l) => JSON.parse(l));
  fs.rmSync(workspace, { recursive: true, force: true });
  const tools = replies.find((r) => r.id === 1).result.tools;
  const text = ['# Tools', '', 'From `tools/list` of this version.', ''];
  for (const t of tools) {
    text.push(`## ${t.name}`, '', cell(t.description), '', '| argument | type | default | meaning |', '| --- | --- | --- | --- |');
    for (const [name, s] of Object.entries(t.inputSchema.properties ?? {}))
      text.push(`| \`${name}\`${(t.inputSchema.required ?? []).includes(name) ? ' (required)' : ''} | ${cell(typeOf(s))} | ${s.default === undefined ? '' : `\`${JSON.stringify(s.default)}\``} | ${cell(s.description)} |`);
    text.push('');
  }
  return { text: text.join('\n'), count: tools.length };
}
function verbsReference() {
  const help = (...args) => run([...args, '--help']);
  const verbsIn = (text) => [...(text.split('\nSubcommands:\n')[1] ?? '').split('\n\n')[0].matchAll(/^ {2}([a-z][a-z-]*)\s/gm)].map((m) => m[1]);
  const text = ['# Verbs', '', 'From `amk --help` of this version.', '', '```', help().trim(), '```', ''];
  let count = 0;
  const add = (...words) => {
    const own = help(...words);
    count++;
    text.push(`## amk ${words.join(' ')}`, '', '```', own.trim(), '```', '');
    for (const verb of verbsIn(own)) add(...words, verb);
  };
  for (const verb of verbsIn(help())) add(verb);
  return { text: text.join('\n'), count };
}

const pages = new Map();
for (const file of fs.readdirSync(docs).filter((f) => f.endsWith('.md'))) pages.set(file.slice(0, -3), fs.readFileSync(path.join(docs, file), 'utf8'));
for (const file of fs.readdirSync(path.join(docs, 'lab')).filter((f) => f.endsWith('.md'))) pages.set(`lab/${file.slice(0, -3)}`, fs.readFileSync(path.join(docs, 'lab', file), 'utf8'));
const tools = toolsReference(), verbs = verbsReference();
pages.set('reference-tools', tools.text);
pages.set('reference-verbs', verbs.text);

const titles = new Map([...pages].map(([name, text]) => [name, /^# (.*)$/m.exec(text)?.[1] ?? name]));
const headings = new Map([...pages].map(([name, text]) => [name, new Set([...text.matchAll(/^#+ (.*)$/gm)].map((m) => slug(m[1])))]));
const listed = new Set(Object.values(sections).flat());
const groups = { ...sections, Explanation: [...pages.keys()].filter((n) => !listed.has(n) && !n.startsWith('lab/')).sort(), 'Lab log': [...pages.keys()].filter((n) => n.startsWith('lab/')).sort() };
const nav = (from) => Object.entries(groups).map(([group, names]) => `<h2>${group}</h2><ul>${names.filter((n) => pages.has(n)).map((n) => `<li><a href="${from.includes('/') ? '../' : ''}${n}.html"${n === from ? ' aria-current="page"' : ''}>${markdown.utils.escapeHtml(titles.get(n))}</a></li>`).join('')}</ul>`).join('');
const style = `:root{color-scheme:light dark}body{font:16px/1.55 system-ui,sans-serif;margin:0;display:flex;flex-wrap:wrap}nav{flex:0 0 15rem;padding:1rem;box-sizing:border-box}nav h2{font-size:.85rem;margin:1rem 0 .2rem}nav ul{list-style:none;margin:0;padding:0}main{flex:1 1 24rem;max-width:54rem;min-width:0;padding:1rem 1.5rem}pre,table{overflow-x:auto;display:block}pre{padding:.8rem;background:color-mix(in srgb,currentColor 8%,transparent)}code{font-size:.92em}td,th{padding:.2rem .6rem;text-align:left;vertical-align:top;border-bottom:1px solid color-mix(in srgb,currentColor 20%,transparent)}[aria-current]{font-weight:600}`;

const broken = [];
fs.rmSync(out, { recursive: true, force: true });
fs.mkdirSync(path.join(out, 'lab'), { recursive: true });
for (const [name, text] of pages) {
  const env = { links: [] };
  const body = markdown.render(text, env);
  for (const href of env.links) {
    const [file, anchor] = href.split('#');
    const target = file ? path.posix.normalize(path.posix.join(path.posix.dirname(name), file)) : `${name}.md`;
    if (target.startsWith('../')) { if (!fs.existsSync(path.join(docs, target))) broken.push(`${name}: ${href}`); continue; }
    const page = target.replace(/\.md$/, '');
    if (target.endsWith('.md') ? !pages.has(page) || (anchor && !headings.get(page).has(anchor)) : !fs.existsSync(path.join(docs, target))) broken.push(`${name}: ${href}`);
  }
  fs.writeFileSync(path.join(out, `${name}.html`), `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${markdown.utils.escapeHtml(titles.get(name))} · amk</title><style>${style}</style><nav><a href="${name.includes('/') ? '../' : ''}index.html">amk</a>${nav(name)}</nav><main>${body}</main></html>\n`);
}
fs.copyFileSync(path.join(out, 'tutorial.html'), path.join(out, 'index.html'));
if (broken.length) { console.error(`broken links:\n${broken.join('\n')}`); process.exit(1); }
console.log(`${pages.size} pages, ${tools.count} tools, ${verbs.count} verbs`);
