// The page: what is selected, and when to ask again.
import 'uplot/dist/uPlot.min.css';
import './style.css';
import { get, setToken, takeToken, watch } from './api.js';
import { importanceCard, phasesCard, regionsCard } from './bars.js';
import { campaignList } from './campaigns.js';
import { dialogs } from './detail.js';
import { fill, h } from './dom.js';
import { plotCard } from './plot.js';
import { jobsCard, summarySection } from './summary.js';
import { tableCard } from './table.js';
import { timelineCard } from './timeline.js';
import { traceCard } from './trace.js';

takeToken();
const top = document.getElementById('top'), nav = document.getElementById('campaigns'), main = document.getElementById('main');

// --- theme: as the system, or as chosen
const themes = ['auto', 'light', 'dark'];
const themeButton = h('button', { type: 'button', class: 'small', onclick: () => setTheme(themes[(themes.indexOf(theme()) + 1) % 3]) });
const theme = () => (themes.includes(localStorage.getItem('amk-theme')) ? localStorage.getItem('amk-theme') : 'auto');
function setTheme(name) {
  localStorage.setItem('amk-theme', name);
  if (name === 'auto') document.documentElement.removeAttribute('data-theme');
  else document.documentElement.setAttribute('data-theme', name);
  themeButton.textContent = { auto: '◐ system', light: '☀ light', dark: '☾ dark' }[name];
  themeButton.setAttribute('aria-label', `Theme: ${name}`);
  document.dispatchEvent(new Event('themechange'));
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => document.dispatchEvent(new Event('themechange')));

// --- frame
const connection = h('span', { class: 'connection', role: 'status', 'data-state': 'connecting' }, 'connecting');
const workspace = h('span', { class: 'quiet workspace' });
const trouble = h('p', { class: 'error', role: 'alert', hidden: true });
fill(top, h('strong', { class: 'brand' }, 'amk'), workspace, h('span', { class: 'space' }), connection, themeButton, h('button', { type: 'button', class: 'small', 'aria-label': 'Keys', onclick: () => dialog.keys() }, '?'));
setTheme(theme());

const dialog = dialogs();
const complain = (text) => {
  trouble.textContent = text;
  trouble.hidden = !text;
};
const summary = summarySection(), jobs = jobsCard(), plot = plotCard((id) => dialog.experiment(id)), timeline = timelineCard(), importance = importanceCard(), phases = phasesCard(), regions = regionsCard(), trace = traceCard();
const table = tableCard({ open: (id) => dialog.experiment(id), diff: (a, b) => dialog.diff(a, b), complain });
const sections = [trouble, summary.section, jobs.section, plot.section, timeline.section, h('div', { class: 'pair' }, importance.section, phases.section, regions.section), trace.section, table.section];
const showList = campaignList(nav, (id) => select(id));

let state = null, selected = new URLSearchParams(location.hash.slice(1)).get('campaign'), shownRevision = null, mounted = false;

function select(id) {
  selected = id;
  history.replaceState(null, '', `#campaign=${id}`);
  shownRevision = null;
  update();
  if (matchMedia('(max-width: 800px)').matches) main.scrollIntoView();
}

function mount() {
  if (mounted) return;
  mounted = true;
  fill(main, sections);
}

function update() {
  if (!state) return;
  workspace.textContent = state.workspace;
  workspace.title = state.workspace;
  if (state.error) complain(state.error.message);
  if (!selected && state.campaigns.length) selected = state.campaigns[0].campaign;
  showList(state, selected);
  if (!selected) {
    mounted = false;
    fill(main, h('section', { class: 'card' }, h('h1', {}, 'No campaign yet'), h('p', {}, 'Start one; this page follows it:'), h('pre', {}, 'amk loop toy --device cpu --budget 24')));
    return;
  }
  mount();
  jobs.update(state.jobs);
  table.show(selected);
  const entry = state.campaigns.find((c) => c.campaign === selected);
  const revision = `${selected} ${entry ? entry.revision : 'unlisted'}`;
  if (revision !== shownRevision) ask(revision);
}

// One request of each kind at a time, and not more than about two a second: a fast loop must not flood the page.
let asking = false, last = 0;
async function ask(revision) {
  if (asking) return;
  asking = true;
  const wait = Math.max(0, 400 - (performance.now() - last));
  if (wait && shownRevision?.startsWith(`${selected} `)) await new Promise((r) => setTimeout(r, wait));
  last = performance.now();
  const id = selected, first = !shownRevision?.startsWith(`${id} `);
  try {
    const [c, s] = await Promise.all([get('campaign', { id }), get('series', { campaign: id, points: 2000 })]);
    if (id === selected) {
      summary.update(c);
      plot.update(s);
      timeline.update(s);
      regions.update(c.best_verdict);
      document.title = `${c.workload} · amk`;
      if (!first) table.refresh();
      shownRevision = revision;
      complain('');
    }
    askSlow(c);
  } catch (e) {
    if (e.status === 404 && state?.campaigns.length) {
      select(state.campaigns[0].campaign);
    } else {
      complain(e.message);
      shownRevision = revision; // asked again when something changes
    }
  } finally {
    asking = false;
    setTimeout(update, 0);
  }
}

// What may take seconds the first time must not hold up the rest.
let slow = false, slowAgain = null;
async function askSlow(c) {
  if (slow) {
    slowAgain = c;
    return;
  }
  slow = true;
  try {
    const [knobs] = await Promise.all([get('importance', { campaign: c.campaign }), trace.update(c)]);
    if (c.campaign === selected) { importance.update(knobs); phases.update(knobs); }
  } catch (e) {
    complain(e.message);
  }
  slow = false;
  const next = slowAgain;
  slowAgain = null;
  if (next) askSlow(next);
}

function askForToken(detail) {
  mounted = false;
  const field = h('input', { type: 'password', 'aria-label': 'Token', placeholder: 'token', autocomplete: 'off' });
  fill(nav);
  fill(main, h('section', { class: 'card' }, h('h1', {}, 'This page needs its token'), h('p', {}, 'Open the address that ', h('code', {}, 'amk dashboard'), ' prints, or paste the token: it is in the workspace, in http.token.'),
    h('form', { class: 'filters', onsubmit: (e) => { e.preventDefault(); setToken(field.value); feed.retry(); } }, field, h('button', { type: 'submit', class: 'primary' }, 'Open')), h('p', { class: 'quiet' }, detail ?? '')));
}

// A daemon that ended comes back at another port, unless it was told which: a person has to know.
const gone = 'The daemon does not answer. If it has ended, run “amk dashboard” again; with --port this page finds the next one by itself.';
let lostTimer = null;
const feed = watch((next) => {
  clearTimeout(lostTimer);
  lostTimer = null;
  if (trouble.textContent === gone) complain('');
  state = { campaigns: state?.campaigns ?? [], campaigns_total: 0, jobs: [], ...next };
  update();
}, (what, detail) => {
  connection.title = detail ?? '';
  if (what === 'connecting') lostTimer ??= setTimeout(() => complain(gone), 8000);
  if (what === connection.dataset.state) return;
  connection.dataset.state = what;
  connection.textContent = { live: 'live', connecting: 'reconnecting', refused: 'no access' }[what];
  if (what === 'refused') askForToken(detail);
});

// --- keys
addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || dialog.isOpen() || e.target.closest('input, select, textarea')) return;
  const around = (by) => {
    const ids = state?.campaigns.map((c) => c.campaign) ?? [];
    const next = ids[ids.indexOf(selected) + by];
    if (next) select(next);
  };
  const act = { '/': () => table.focusFilter(), t: () => table.focusFirst(), d: () => table.compare(), n: () => table.turn(1), p: () => table.turn(-1), '[': () => around(-1), ']': () => around(1), l: () => themeButton.click(), '?': () => dialog.keys() }[e.key];
  if (!act) return;
  e.preventDefault();
  act();
});
