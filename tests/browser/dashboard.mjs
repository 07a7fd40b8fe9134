// dashboard.mjs AMK PAGE_FOLDER SCREENSHOT_FOLDER
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync, gzipSync } from 'node:zlib';
import { Checks, Program, connection, launch, open, press, sleep, text, texts, tiles } from './harness.mjs';

const [amkPath, pageFolder, shots] = process.argv.slice(2);
const check = new Checks();
const amk = new Program(amkPath);
const hostile = '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>\u202e"\'`${1}';

const freePort = () => new Promise((resolve) => {
  const s = createServer().listen(0, '127.0.0.1', () => {
    const { port } = s.address();
    s.close(() => resolve(port));
  });
});

// A trace as an instrumented megakernel would leave it: every SM waits, loads, computes, publishes, over and over.
function writeTrace(schedule, sms, tasks) {
  mkdirSync(join(amk.workspace, 'traces'), { recursive: true });
  const events = [];
  for (let sm = 0; sm < sms; sm += 1) {
    let t = (sm % 7) * 0.05;
    for (let i = 0; i < tasks; i += 1)
      for (const [cat, dur] of [['wait-dependency', 0.2 + ((sm + i) % 5) * 0.1], ['wait-weights', 0.4], ['compute', 1.1 + (i % 3) * 0.3], ['publish', 0.1]]) {
        events.push({ ph: 'X', pid: 0, tid: sm, ts: Number(t.toFixed(4)), dur: Number(dur.toFixed(4)), cat, name: `L${i}.${cat === 'compute' ? 'gate_up' : 'qkv'}` });
        t += dur;
      }
  }
  writeFileSync(join(amk.workspace, 'traces', `${schedule}.json`), JSON.stringify({ traceEvents: events }));
  return events.length;
}

// One that `amk trace small` wrote on an H200, with what it said of it.
function realTrace() {
  const from = join(dirname(fileURLToPath(import.meta.url)), '../fixtures/traces');
  const said = JSON.parse(readFileSync(join(from, 'small-h200.said.json'), 'utf8'));
  said.schedule_id = 's0000h200small';  // the default schedule's own id may be a role's in this workspace
  writeFileSync(join(amk.workspace, 'traces', `${said.schedule_id}.json`), gunzipSync(readFileSync(join(from, 'small-h200.json.gz'))));
  return said;
}

async function prepare() {
  await amk.run('loop', 'toy-2L', '--device', 'cpu', '--budget', '8');
  await amk.run('loop', 'toy', '--device', 'cpu', '--budget', '89');
  // A campaign that a plateau ended takes no records; overnight, plateaus end nothing.
  await amk.run('autoresearch', 'toy', '--device', 'cpu', '--iters', '1', '--overnight', '--reopen');
  const verdict = await amk.run('eval', 'toy', '--device', 'cpu', '--config', '{"pipelining_depth":1}', '--hypothesis', hostile);
  const status = verdict.status === 'rejected' ? 'rejected' : verdict.versus?.decision === 'faster' ? 'kept' : 'revert';
  await amk.run('orchestrate', 'record', '--campaign', 'c2', '--status', status, '--verdict-id', verdict.verdict_id, '--config', '{"pipelining_depth":1}', '--description', hostile);
  return amk.run('orchestrate', 'status', '--campaign', 'c2');
}

async function looks(browser, url, status) {
  const page = await open(browser, url);
  await check.eventually('the page is live', () => connection(page), (v) => v === 'live');
  await check.eventually('the campaign that changed last is shown', () => text(page, 'h1'), (v) => v === 'toy');
  check.that('the token leaves the address bar', !page.url().includes('token'), page.url());
  check.equal('both campaigns are listed, the newest first', await texts(page, '#campaigns .name'), ['toy', 'toy-2L']);
  const shown = await tiles(page);
  check.equal('experiments', shown.Experiments?.value, String(status.experiments.ended));
  check.equal('kept', shown.Experiments?.detail, `${status.counts.kept} kept`);
  check.equal('best', shown.Best?.value, `${Number(status.best.latency_us.toPrecision(4))} µs`);
  check.equal('a prediction is called one', shown.Best?.detail, `predicted · ${status.best.experiment}`);
  check.equal('speedup', shown['Over own baseline']?.value, `×${Number(status.speedup_over_own_baseline.toPrecision(3))}`);
  await check.eventually('the plot is drawn', () => page.$eval('.plot canvas', (c) => {
    const pixels = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
    const colours = new Set();
    for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] > 200) colours.add((pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2]);
    return colours.size;
  }), (n) => n > 3);
  const legend = (await texts(page, '.legend li')).join(' ');
  for (const [outcome, n] of Object.entries(status.counts)) if (n) check.that(`outcomes: ${n} ${outcome}`, legend.includes(`${outcome} ${n}`), legend);
  const propose = await amk.run('propose', 'toy', '--device', 'cpu');
  await check.eventually('knob importance as the agent reads it', async () => (await texts(page, '.pair .card:first-child .barlabel')).slice(0, propose.knobs_that_matter.length), (v) => JSON.stringify(v) === JSON.stringify(propose.knobs_that_matter.map((k) => k.knob)));
  const spent = JSON.parse(readFileSync((await amk.run('report')).json_path, 'utf8')).history.time_by_phase_s;
  await check.eventually('the phases of the report', async () => (await texts(page, '.pair .card:nth-child(2) .barlabel')).sort(), (v) => JSON.stringify(v) === JSON.stringify(Object.keys(spent).sort()));
  await check.eventually('where the time goes', async () => (await texts(page, '.pair .card:last-child .barlabel')).length, (n) => n >= 4);
  await check.eventually('the token timeline says how time is spent', async () => (await texts(page, '.legend li')).join(' '), (v) => v.includes('waits for weights') && v.includes('computes'));
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
  console.log(JSON.stringify({ metric: 'first_contentful_paint', value: Math.round(paint), unit: 'ms' }));
  await sleep(300);
  await page.screenshot({ path: join(shots, 'desktop.png'), fullPage: true });
  check.equal('nothing went wrong in the page', page.troubles, []);
  return page;
}

async function table(page, status) {
  const rows = () => page.$$eval('tbody tr', (all) => all.map((r) => ({ id: r.dataset.id, outcome: r.querySelector('td.outcome')?.textContent, latency: r.querySelector('td.number')?.firstChild?.textContent })));
  const settled = async (what, wanted) => check.eventually(what, rows, wanted);
  await settled('a page of fifty', (r) => r.length === 50);
  const first = await rows();
  await press(page, 'n');
  await settled('the next page', (r) => r.length === status.experiments.ended - 50 && r[0].id !== first[0].id);
  await press(page, 'p');
  await settled('and back', (r) => r[0].id === first[0].id);

  await page.click('.filters button[data-outcome="kept"]');
  await settled('only the kept', (r) => r.length === status.counts.kept && r.every((x) => x.outcome === 'kept'));
  await page.select('select[aria-label="Order"]', 'latency_us');
  await settled('the fastest first', (r) => r[0].id === status.best.experiment && r[0].latency === `${Number(status.best.latency_us.toPrecision(4))} µs`);
  await page.click('.filters button[data-outcome="kept"]');
  await page.type('#filter', status.best.schedule_id);
  await press(page, 'Enter');
  await settled('one schedule', (r) => r.length >= 1 && r.some((x) => x.id === status.best.experiment));
  await settled('and no other', (r) => r.length < 50);
  await page.$eval('#filter', (e) => { e.value = ''; e.dispatchEvent(new Event('change')); });
  await settled('every schedule', (r) => r.length === 50);
  await page.type('#filter', (await text(page, 'tbody tr td code')));
  await press(page, 'Enter');
  await settled('the beginning of an id in sight', (r) => r.length >= 1 && r.length < 50);
  await page.$eval('#filter', (e) => { e.value = ''; e.dispatchEvent(new Event('change')); });
  await page.type('#filter', status.best.experiment);
  await press(page, 'Enter');
  await check.eventually('an experiment’s number opens it', () => text(page, 'dialog[open] #dialogtitle'), (v) => v.startsWith(`${status.best.experiment} `));
  await press(page, 'Escape');
  await page.$eval('#filter', (e) => { e.value = 'no such'; e.dispatchEvent(new Event('change')); });
  await settled('nothing fits', (r) => r.length === 0);
  await page.$eval('#filter', (e) => { e.value = ''; e.dispatchEvent(new Event('change')); });
  await page.select('select[aria-label="Order"]', 'time');
  await settled('all again, oldest first', (r) => r.length === 50 && r[0].id !== status.best.experiment);

  const [a, b] = (await rows()).slice(0, 2).map((r) => r.id);
  await page.click(`tr[data-id="${a}"] input`);
  await page.click(`tr[data-id="${b}"] input`);
  await page.click('button.primary');
  await page.waitForSelector('dialog[open] table.diff');
  const told = await amk.run('results', '--diff', a, b);
  check.equal('the difference of two configs, knob by knob', (await texts(page, '.diff tbody th')).sort(), Object.keys(told.differs).sort());
  await page.screenshot({ path: join(shots, 'diff.png') });
  await press(page, 'Escape');
  check.equal('Escape closes', await page.$('dialog[open]'), null);
}

async function keyboard(page) {
  await page.evaluate(() => document.activeElement?.blur());
  const focused = () => page.evaluate(() => document.activeElement?.dataset?.id ?? document.activeElement?.id ?? '');
  await press(page, 't');
  const ids = await page.$$eval('tbody tr', (all) => all.map((r) => r.dataset.id));
  check.equal('t goes to the table', await focused(), ids[0]);
  await press(page, 'ArrowDown', 'j');
  check.equal('arrows and j move', await focused(), ids[2]);
  await press(page, 'k', 'Enter');
  await check.eventually('Enter opens the verdict', () => text(page, 'dialog[open] #dialogtitle'), (v) => v.startsWith(`${ids[1]} `));
  const parts = await texts(page, 'dialog h3');
  check.that('a verdict has its parts', ['Against the oracle', 'Where the time goes', 'Built', 'Config'].every((p) => parts.includes(p)), parts);
  check.that('focus is inside', await page.evaluate(() => document.querySelector('dialog').contains(document.activeElement)));
  await page.screenshot({ path: join(shots, 'verdict.png') });
  await press(page, 'Escape');
  check.equal('focus returns to the row', await focused(), ids[1]);
  await press(page, 'Home', ' ', 'End', ' ', 'd');
  await check.eventually('Space chooses, d compares', () => text(page, 'dialog[open] #dialogtitle'), (v) => v.includes(ids.at(-1)));
  await press(page, 'Escape', '?');
  await check.eventually('? lists the keys', () => text(page, 'dialog[open] #dialogtitle'), (v) => v === 'Keys');
  await press(page, 'Escape', '/');
  check.equal('/ goes to the filter', await focused(), 'filter');
  await page.evaluate(() => document.activeElement.blur());
  await press(page, ']');
  await check.eventually('] goes to the other campaign', () => text(page, 'h1'), (v) => v === 'toy-2L');
  await press(page, '[');
  await check.eventually('[ comes back', () => text(page, 'h1'), (v) => v === 'toy');
  const reachable = await page.$$eval('button, select, input', (all) => all.filter((e) => e.offsetParent && !e.disabled && !e.closest('td') && e.tabIndex < 0).length);
  check.equal('every control is in the tab order', reachable, 0);
  const unnamed = await page.$$eval('button, select, input, canvas', (all) => all.filter((e) => e.offsetParent && !e.textContent.trim() && !e.getAttribute('aria-label') && !e.closest('label, .plot')).length);
  check.equal('every control and picture has a name', unnamed, 0);
}

async function hostility(page) {
  const id = await page.evaluate(async () => {
    const token = sessionStorage.getItem('amk-token');
    const r = await fetch('/dashboard/api/results?campaign=c2&limit=200', { headers: { Authorization: `Bearer ${token}` } });
    return (await r.json()).rows.find((x) => x.description)?.experiment;
  });
  check.that('the hostile description is in the store', Boolean(id), id);
  await page.select('select[aria-label="Order"]', '-time');
  await page.waitForSelector(`tr[data-id="${id}"]`);
  check.equal('it is shown as it was typed', await text(page, `tr[data-id="${id}"] td.text`), hostile);
  await page.click(`tr[data-id="${id}"] td.id`);
  await check.eventually('in the verdict as well', async () => (await texts(page, 'dialog[open] .usertext')).join('\n'), (v) => v.includes(hostile) && v.includes(`hypothesis: ${hostile}`));
  await sleep(200);
  check.equal('no markup came of it', await page.evaluate(() => [document.querySelectorAll('main img, dialog img, main script, dialog script').length, window.hacked ?? null]), [0, null]);
  await press(page, 'Escape');
  check.equal('nor any error', page.troubles, []);
}

async function live(page) {
  const before = Number((await tiles(page)).Experiments.value.replace(/,/g, ''));
  const job = await amk.run('loop', 'toy', '--device', 'cpu', '--budget', '250', '--seed', '77', '--detach');
  await check.eventually('the running job is shown', () => texts(page, '.jobs li'), (v) => v.some((t) => t.includes('loop toy')));
  await check.eventually('experiments arrive while the loop runs', async () => Number((await tiles(page)).Experiments.value.replace(/,/g, '')), (n) => n > before && n < before + 250);
  await check.eventually('up to the last', async () => Number((await tiles(page)).Experiments.value.replace(/,/g, '')), (n) => n === before + 250, 60_000);
  check.equal('the job is done', (await amk.run('job', job.job_id, '--wait', '20')).state, 'done');
  const status = await amk.run('orchestrate', 'status', '--campaign', 'c2');
  await check.eventually('the best is the store’s', async () => (await tiles(page)).Best.detail, (v) => v === `predicted · ${status.best.experiment}`);
  await check.eventually('the outcomes too', async () => (await texts(page, '.legend li')).join(' '), (v) => v.includes(`revert ${status.counts.revert}`));
  await check.eventually('the table’s first page follows', async () => (await page.$$eval('tbody tr', (r) => r[0].dataset.id)), (v) => v === `e${status.experiments.ended + 8}`);
  await check.eventually('a finished job leaves', () => page.$eval('.jobs', (e) => e.closest('section').hidden));
}

async function reconnects(page, port) {
  await amk.run('serve', '--stop', '--force');
  await check.eventually('a lost daemon is noticed', () => connection(page), (v) => v === 'connecting');
  await check.eventually('after a while it is said', () => text(page, '[role="alert"]'), (v) => v.includes('run “amk dashboard” again'));
  const again = await amk.run('dashboard', '--port', String(port));
  check.that('the address stays', again.url.includes(`:${port}/`), again.url);
  await check.eventually('the page comes back by itself', () => connection(page), (v) => v === 'live', 40_000);
  await check.eventually('and says no more of it', () => page.$eval('[role="alert"]', (e) => e.hidden));
  let asked = 0;
  const count = () => { asked += 1; };
  page.on('request', count);
  await sleep(1500);
  page.off('request', count);
  check.that('a page that sees no change asks nothing', asked <= 8, asked); // what it asks once after coming back
  asked = 0;
  page.on('request', count);
  await sleep(1500);
  check.equal('and stays quiet', asked, 0);
  page.off('request', count);
}

async function access(browser, url) {
  const base = url.split('#')[0];
  const wrong = await open(browser, `${base}#token=${'0'.repeat(64)}`);
  await check.eventually('a wrong token is refused', () => text(wrong, 'h1'), (v) => v === 'This page needs its token');
  check.equal('and shows nothing', await wrong.$$eval('.campaign, .tile, tbody tr', (all) => all.length), 0);
  await wrong.type('main input', new URLSearchParams(url.split('#')[1]).get('token'));
  await press(wrong, 'Enter');
  await check.eventually('the right one, typed, opens it', () => connection(wrong), (v) => v === 'live');
  await check.eventually('with its campaign', () => text(wrong, 'h1'), (v) => v === 'toy');
  for (const name of ['events', 'state', 'results', 'series?campaign=c1', 'experiment?id=e1'])
    check.equal(`no token, no ${name}`, (await fetch(`${base}/api/${name}`)).status, 401);
  await wrong.close();
  check.equal('another page’s origin', (await fetch(base, { headers: { Origin: 'https://evil.example' } })).status, 403);
}

// Relative luminance and contrast as WCAG 2 defines them.
const contrastIn = (page, selector) => page.$eval(selector, (e) => {
  const luminance = (css) => {
    const [r, g, b] = css.match(/[\d.]+/g).map(Number).slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let ground = e;
  while (getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;
  const a = luminance(getComputedStyle(e).color), b = luminance(getComputedStyle(ground).backgroundColor);
  return { contrast: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), ground: b };
});

async function themes(browser, url) {
  for (const dark of [false, true]) {
    const page = await open(browser, url, { dark });
    await check.eventually(`${dark ? 'dark' : 'light'} is live`, () => text(page, 'h1'), (v) => v === 'toy');
    await page.waitForSelector('tbody tr');
    for (const selector of ['h1', '.quiet', '.tile dt', '.tile dd', 'td.number', '.chip', '.state', '.barvalue', 'thead th.id', 'small', '.hover']) {
      const { contrast, ground } = await contrastIn(page, selector);
      check.that(`${dark ? 'dark' : 'light'}: ${selector} can be read`, contrast >= 4.5 && (ground < 0.2) === dark, { contrast, ground });
    }
    if (dark) {
      await sleep(500);
      await page.screenshot({ path: join(shots, 'desktop-dark.png'), fullPage: true });
      await press(page, 'l');
      check.that('l chooses light against the system', (await contrastIn(page, 'h1')).ground > 0.8);
      await page.reload();
      await page.waitForSelector('h1');
      check.that('and it stays', (await contrastIn(page, 'h1')).ground > 0.8);
    }
    await page.close();
  }
}

async function phone(browser, url) {
  for (const width of [390, 320]) {
    const page = await open(browser, url, { width, height: 844, scale: 2, touch: true });
    await check.eventually(`${width} px is live`, () => text(page, 'h1'), (v) => v === 'toy');
    await page.waitForSelector('tbody tr');
    await page.waitForSelector('.plot canvas');
    await sleep(500);
    const fits = () => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth && innerWidth);
    check.equal(`${width} px: no sideways scrolling`, await fits(), width);
    if (width === 390) await page.screenshot({ path: join(shots, 'phone.png'), fullPage: true });
    await page.tap('tbody tr td.id');
    await page.waitForSelector('dialog[open] .part');
    const inside = await page.$eval('.dialogbody', (e) => e.scrollWidth <= e.clientWidth);
    check.that(`${width} px: a verdict fits`, inside && (await fits()) === width);
    if (width === 390) await page.screenshot({ path: join(shots, 'phone-verdict.png') });
    check.equal(`${width} px: nothing went wrong`, page.troubles, []);
    await page.close();
  }
}

async function realTimeline(page, said) {
  const choice = 'select[aria-label="Traced schedule"]';
  const label = () => page.$eval('canvas.trace', (c) => c.getAttribute('aria-label'));
  const before = await page.$eval(choice, (c) => c.value);
  await page.select(choice, said.schedule_id);
  await check.eventually('a real trace: its SMs and its length', label, (v) => v.startsWith(`132 SMs over ${Number(said.span_us.toPrecision(4))}`));
  const shown = await label();
  const share = (words) => Number(new RegExp(`${words} ([0-9.]+) %`).exec(shown)?.[1]) / 100;
  for (const [words, us] of [['waits for another task', said.per_sm_us.wait_dependency], ['waits for weights', said.per_sm_us.wait_weights],
    ['computes', said.per_sm_us.compute], ['publishes', said.per_sm_us.publish], ['idle', said.per_sm_us.idle]])
    check.that(`a real trace: ${words}, as amk trace said`, Math.abs(share(words) - us / said.span_us) < 0.001, `${share(words)} against ${us / said.span_us}`);
  await page.$eval('canvas.trace', (c) => c.scrollIntoView({ block: 'center' }));
  await page.screenshot({ path: join(shots, 'timeline-h200.png') });
  // Publishing runs beside the next task: both are named under one pointer, somewhere along the row of one SM.
  await page.focus('canvas.trace');
  await press(page, '+', '+');
  await check.eventually('zoomed in, it is another window', label, (v) => v !== shown);
  const box = await (await page.$('canvas.trace')).boundingBox();
  const hovers = [];
  for (let x = 4; x < box.width; x += 4) {
    await page.mouse.move(box.x + x, box.y + 2);
    hovers.push(await page.evaluate(() => document.querySelector('canvas.trace').closest('section').querySelector('.hover').textContent));
  }
  check.that('what publishes and what runs beside it are both named', hovers.some((t) => t.includes(' · publishes for ') && / · (computes|waits for another task|waits for weights) for /.test(t)), hovers.slice(0, 3).join(' | '));
  check.that('tasks are named as the program names them', hovers.some((t) => /L\d\.(qkv|attention|combine|o_proj|gate_up|down)\[/.test(t)), hovers.slice(0, 3).join(' | '));
  await page.screenshot({ path: join(shots, 'timeline-h200-zoomed.png') });
  await press(page, '0');
  await page.select(choice, before);
  await check.eventually('and back to the other', label, (v) => !v.startsWith(`132 SMs over ${Number(said.span_us.toPrecision(4))}`));
}

async function timeline(page, events) {
  const canvas = await page.$('canvas.trace');
  await canvas.scrollIntoView();
  const label = () => page.$eval('canvas.trace', (c) => c.getAttribute('aria-label'));
  const whole = await label();
  check.that('132 SMs', whole.startsWith('132 SMs over '), whole);
  await page.screenshot({ path: join(shots, 'timeline.png') });
  await canvas.focus();
  await press(page, '+', '+');
  await check.eventually('plus zooms in', label, (v) => v !== whole);
  await canvas.hover();
  await check.eventually('an event is named under the pointer', () => page.evaluate(() => document.querySelector('canvas.trace').closest('section').querySelector('.hover').textContent), (v) => /SM \d+ at .* (computes|publishes|waits)/.test(v));
  await press(page, '0');
  await check.eventually('0 shows the whole token', label, (v) => v === whole);
  check.that('more events than are sent', events > 12_000);
  const stored = await text(page, '.plot ~ .note');
  check.that('a far floor is offered', stored.includes('is far below'), stored);
  await page.click('button[title="Always include the physical floor"]');
  await check.eventually('and shown on request', () => text(page, '.plot ~ .note'), (v) => v.includes('Dashed: the physical floor, 0.88 ns'));
  await page.click('button[title="Always include the physical floor"]');
}

// No GPU here: the answer of a measured campaign is the real one with noise and a nearer floor put in.
async function noise(browser, url) {
  const page = await open(browser);
  await page.setRequestInterception(true);
  const token = new URLSearchParams(url.split('#')[1]).get('token');
  page.on('request', async (r) => {
    if (!r.url().includes('/api/series')) return r.continue();
    const series = await (await fetch(r.url(), { headers: { Authorization: `Bearer ${token}` } })).json();
    series.kind = 'measured-gpu';
    series.best.mad_us = series.best.latency_us.map((v) => v * 0.06);
    series.floor_us = series.best.latency_us.at(-1) * 0.7;
    return r.respond({ contentType: 'application/json', body: JSON.stringify(series) });
  });
  await page.goto(url);
  await check.eventually('a measured best has its band, and the floor is named', () => text(page, '.plot ~ .note'), (v) => v.includes('median absolute deviation') && v.includes('Dashed: the physical floor, '));
  // Translucent: a colour between the accent's and nothing's, which no other mark has.
  await check.eventually('the band is drawn', () => page.$eval('.plot canvas', (c) => {
    const pixels = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
    let n = 0;
    for (let i = 3; i < pixels.length; i += 4) if (pixels[i] > 40 && pixels[i] < 52) n += 1;
    return n;
  }), (n) => n > 2000);
  await page.screenshot({ path: join(shots, 'measured.png') });
  const drawn = () => page.$eval('.plot canvas', (c) => c.toDataURL());
  const linear = await drawn();
  await page.click('button[title="Logarithmic latency"]');
  await check.eventually('a logarithmic plot is another', async () => (await drawn()) !== linear);
  await page.click('button[title="Logarithmic latency"]');
  await check.eventually('and back', async () => (await drawn()) === linear);
  check.equal('nothing went wrong with noise', page.troubles, []);
  await page.close();
}

mkdirSync(shots, { recursive: true });
const bytes = readdirSync(pageFolder).reduce((sum, name) => sum + gzipSync(readFileSync(join(pageFolder, name))).length, 0);
console.log(JSON.stringify({ metric: 'page_gzipped', value: bytes, unit: 'bytes' }));
check.that('the page is below 300 KB gzipped', bytes < 300_000, bytes);
const browser = await launch();
try {
  const status = await prepare();
  const events = writeTrace(status.best.schedule_id, 132, 30);
  const said = realTrace();
  const port = await freePort();
  const { url } = await amk.run('dashboard', '--port', String(port));
  check.equal('asked again, the same address', (await amk.run('dashboard')).url, url);
  const page = await looks(browser, url, status);
  await noise(browser, url);
  await page.bringToFront();
  await timeline(page, events);
  await realTimeline(page, said);
  await table(page, status);
  await keyboard(page);
  await hostility(page);
  await access(browser, url);
  await live(page);
  await reconnects(page, port);
  await themes(browser, url);
  await phone(browser, url);
} catch (e) {
  check.that('the run itself', false, e.stack);
} finally {
  await browser.close();
  await amk.remove();
}
console.log(`${check.passed} passed, ${check.failed} failed`);
process.exit(check.failed === 0 ? 0 : 1);
