// What a person does once: client configuration, shell completion.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { equal, ok, root, test } from './harness.mjs';

test('setup claude: prints, asks for consent, keeps what is there, and is idempotent', (ws) => {
  const file = path.join(ws.dir, '.mcp.json');
  const printed = ws.amk(['setup', 'claude']);
  equal(printed.code, 0, 'exit');
  equal(printed.json.file, file, 'file');
  equal(fs.existsSync(file), false, 'nothing written');
  const command = JSON.parse(printed.json.configuration).mcpServers.amk.command;
  equal(command, path.join(root, 'amk'), 'the command starts this source tree');

  const unasked = ws.amk(['setup', 'claude', '--write']);
  equal(unasked.code, 2, 'nobody to ask');
  ok(unasked.json.error.message.includes('--yes'), unasked.json.error.message);
  fs.writeFileSync(file, JSON.stringify({ mcpServers: { other: { command: 'x' }, amk: { command: './old' } }, kept: [1] }));
  fs.chmodSync(file, 0o600);
  equal(ws.amk(['setup', 'claude', '--write', '--yes']).json.written, true, 'written');
  const now = JSON.parse(fs.readFileSync(file, 'utf8'));
  equal(now, { mcpServers: { other: { command: 'x' }, amk: { command, args: ['mcp'] } }, kept: [1] }, 'merged');
  equal(fs.statSync(file).mode & 0o777, 0o600, 'mode');
  const again = ws.amk(['setup', 'claude', '--write', '--yes']).json;
  equal([again.changed, again.written], [false, false], 'idempotent');

  for (const bad of ['{not json', '[1]', '{"mcpServers":3}']) {
    fs.writeFileSync(file, bad);
    equal(ws.amk(['setup', 'claude', '--write', '--yes']).code, 2, `refused: ${bad}`);
    equal(fs.readFileSync(file, 'utf8'), bad, 'untouched');
  }
});

test('setup codex: appends its table once, and leaves another one to a person', (ws) => {
  const file = path.join(ws.dir, 'codex', 'config.toml');
  const env = { CODEX_HOME: path.join(ws.dir, 'codex') };
  equal(ws.amk(['setup', 'codex', '--write', '--yes'], { env }).json.file, file, 'under CODEX_HOME');
  const first = fs.readFileSync(file, 'utf8');
  ok(first.startsWith('[mcp_servers.amk]\ncommand = "/'), first);
  equal(ws.amk(['setup', 'codex', '--write', '--yes'], { env }).json.changed, false, 'idempotent');

  fs.writeFileSync(file, 'model = "m"');
  ws.amk(['setup', 'codex', '--write', '--yes'], { env });
  equal(fs.readFileSync(file, 'utf8'), `model = "m"\n\n${first}`, 'appended');

  const target = path.join(ws.dir, 'dotfiles.toml');
  fs.renameSync(file, target);
  fs.symlinkSync(target, file);
  fs.writeFileSync(target, 'a = 1\n');
  ws.amk(['setup', 'codex', '--write', '--yes'], { env });
  ok(fs.lstatSync(file).isSymbolicLink(), 'still a link');
  ok(fs.readFileSync(target, 'utf8').includes('[mcp_servers.amk]'), 'its target was changed');

  fs.writeFileSync(target, '[mcp_servers.amk]\ncommand = "mine"\n');
  const other = ws.amk(['setup', 'codex', '--write', '--yes'], { env });
  equal(other.code, 2, 'another table is not overwritten');
  equal(fs.readFileSync(target, 'utf8'), '[mcp_servers.amk]\ncommand = "mine"\n', 'untouched');
  equal(ws.amk(['setup', 'emacs']).code, 2, 'unknown client');
});

test('completion: bash completes verbs, verbs of verbs, options and their values; zsh and fish parse where they are', (ws) => {
  const script = ws.amk(['completion', 'bash']);
  equal(script.code, 0, 'exit');
  const complete = (...words) => {
    const code = `${script.out}\nCOMP_WORDS=(${words.map((w) => `'${w}'`).join(' ')}); COMP_CWORD=${words.length - 1}; _amk 2>/dev/null; printf '%s\\n' "\${COMPREPLY[@]}"`;
    return spawnSync('bash', ['-c', code], { encoding: 'utf8' }).stdout.split('\n').filter(Boolean);
  };
  equal(complete('amk', 'ev'), ['eval'], 'verb');
  equal(complete('amk', 'orchestrate', 're').sort(), ['record', 'report'], 'verb of a verb');
  ok(complete('amk', 'eval', 'llama').includes('llama-3.2-1b'), 'model');
  ok(complete('amk', 'eval', 'toy', '--gpu', 'h2').includes('h200'), 'value of an option');
  equal(complete('amk', 'loop', 'toy', '--bud'), ['--budget'], 'option');
  ok(!complete('amk', '').includes('worker'), 'hidden verbs stay hidden');
  for (const [shell, check] of [['bash', ['-n']], ['zsh', ['-n']], ['fish', ['--no-execute']]]) {
    const text = ws.amk(['completion', shell]).out;
    ok(text.includes('amk'), shell);
    const parsed = spawnSync(shell, check, { input: text, encoding: 'utf8' });
    if (!parsed.error) equal(parsed.status, 0, `${shell} parses it: ${parsed.stderr}`);
  }
  equal(ws.amk(['completion', 'csh']).code, 2, 'unknown shell');
});
