// Another user of the machine: the daemon says nothing to him, also where the file system would let him in.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { equal, ok, test } from './harness.mjs';

const kNobody = 65534;
// Prints the first bytes that the socket says, or how the connection ended.
const listen = `
  const socket = require('node:net').connect(process.argv[1]);
  const end = (what) => { console.log(what); process.exit(0); };
  socket.once('data', (d) => end('said ' + d.length)).once('close', () => end('closed')).once('error', (e) => end(e.code));
  socket.on('connect', () => socket.write('{"amk_client":{"cwd":"/"}}\\n{"jsonrpc":"2.0","id":1,"method":"ping"}\\n'));
  setTimeout(() => end('silent'), 20000);`;

test('the socket is the user\'s own: nobody else is answered', (ws) => {
  equal(ws.amk(['orchestrate', 'status']).code, 0, 'a daemon runs');
  const socket = `${ws.ws}/daemon.sock`;
  equal(fs.statSync(socket).mode & 0o777, 0o600, 'mode of the socket');
  const hear = (uid) => spawnSync(process.execPath, ['-e', listen, socket], { cwd: '/', encoding: 'utf8', ...(uid === undefined ? {} : { uid, gid: uid }) }).stdout.trim();
  ok(/^said \d+$/.test(hear()), 'the same user is greeted');
  if (process.getuid() !== 0) return;  // only root may be somebody else
  for (const folder of [ws.dir, ws.ws]) fs.chmodSync(folder, 0o755);
  equal(hear(kNobody), 'EACCES', 'another user, at the file');
  fs.chmodSync(socket, 0o666);
  const told = hear(kNobody);
  ok(told === 'closed' || told === 'ECONNRESET' || told === 'EPIPE', `another user whom the file lets in: ${told}`);
  ok(/^said \d+$/.test(hear()), 'and the daemon serves on');
});
