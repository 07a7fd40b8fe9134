// Experiments: filtered, sorted and paged by the server; two of them can be compared.
import { get } from './api.js';
import { card, count, digits, fill, h, kindWord, outcomeBadge, outcomes, us } from './dom.js';

// A phone shows few rows at a time, and much below them.
const pageSize = matchMedia('(max-width: 560px)').matches ? 25 : 50;

export function tableCard({ open, diff, complain }) {
  let campaign = null, everywhere = false, chosenOutcomes = new Set(), cursors = [''], page = 0, rows = [], next = '', picked = [], active = 0, request = 0;

  const kind = h('select', { 'aria-label': 'Kind of latency', onchange: () => first() },
    [['', 'any latency'], ['measured-gpu', 'measured'], ['predicted', 'predicted'], ['foreign', 'imported']].map(([v, t]) => h('option', { value: v }, t)));
  const sort = h('select', { 'aria-label': 'Order', onchange: () => first() },
    [['-time', 'newest first'], ['time', 'oldest first'], ['latency_us', 'fastest first'], ['-latency_us', 'slowest first']].map(([v, t]) => h('option', { value: v }, t)));
  const schedule = h('input', { type: 'search', id: 'filter', placeholder: 'schedule id or e12', 'aria-label': 'Schedule id, its beginning as shown, or an experiment', autocomplete: 'off', spellcheck: 'false', onchange: () => search(), onsearch: () => search() });
  const all = h('label', { class: 'check' }, h('input', { type: 'checkbox', onchange: (e) => { everywhere = e.target.checked; first(); } }), 'all campaigns');
  const chips = h('div', { class: 'filters', role: 'group', 'aria-label': 'Outcomes' }, outcomes.map((o) =>
    h('button', { type: 'button', class: 'outcome', 'data-outcome': o, 'aria-pressed': 'false', onclick: (e) => {
      if (chosenOutcomes.has(o)) chosenOutcomes.delete(o);
      else chosenOutcomes.add(o);
      e.currentTarget.setAttribute('aria-pressed', String(chosenOutcomes.has(o)));
      first();
    } }, o)));
  const body = h('tbody');
  const columns = [['', 'pick'], ['experiment', 'id'], ['outcome', 'outcome'], ['latency', 'number'], ['of roofline', 'number wide'], ['reason', 'wide'], ['schedule', 'wider'], ['description', 'wider'], ['ended', 'wider']];
  const table = h('table', {}, h('caption', { class: 'hidden' }, 'Experiments'), h('thead', {}, h('tr', {}, columns.map(([t, c]) => h('th', { class: c, scope: 'col' }, t || h('span', { class: 'hidden' }, 'compare'))))), body);
  const empty = h('p', { class: 'quiet empty' });
  const back = h('button', { type: 'button', onclick: () => go(page - 1) }, '‹ previous');
  const forward = h('button', { type: 'button', onclick: () => go(page + 1) }, 'next ›');
  const where = h('span', { class: 'quiet', role: 'status' });
  const compare = h('button', { type: 'button', class: 'primary', onclick: () => picked.length === 2 && diff(picked[0], picked[1]) }, 'Compare two');
  const section = card('Experiments', compare, h('div', { class: 'filterbar' }, chips, h('div', { class: 'filters' }, kind, sort, schedule, all)), table, empty, h('div', { class: 'pager' }, back, where, forward));

  // The table shows the beginnings of ids: one of a row in sight stands for the whole. An experiment is opened.
  let wanted = '';
  function search() {
    const typed = schedule.value.trim();
    if (/^e\d+$/.test(typed)) {
      schedule.value = '';
      open(typed);
    }
    const now = schedule.value.trim() && (rows.find((r) => r.schedule_id?.startsWith(typed))?.schedule_id ?? typed);
    if (now === wanted) return;
    wanted = now;
    first();
  }
  function first() {
    cursors = [''];
    page = 0;
    load();
  }
  function go(to) {
    if (to < 0 || (to > page && !next)) return;
    if (to > page) cursors[to] = next;
    page = to;
    load().then(() => focusRow(0));
  }
  async function load() {
    if (!campaign) return;
    request += 1;
    const mine = request;
    try {
      const answer = await get('results', {
        campaign: everywhere || kind.value === 'foreign' ? '' : campaign, outcome: [...chosenOutcomes], kind: kind.value, schedule_id: wanted, sort: sort.value, limit: pageSize, cursor: cursors[page] });
      if (mine !== request) return;
      rows = answer.rows;
      next = answer.next_cursor ?? '';
      complain('');
    } catch (e) {
      if (mine !== request) return;
      rows = [];
      next = '';
      complain(e.message);
    }
    render();
  }

  function render() {
    const held = body.contains(document.activeElement) ? document.activeElement.closest('tr')?.dataset.id : null;
    const inPick = held && document.activeElement.tagName === 'INPUT';
    active = Math.min(active, Math.max(0, rows.length - 1));
    fill(body, rows.map((r, i) => row(r, i)));
    empty.textContent = rows.length ? '' : 'No experiment fits.';
    empty.hidden = rows.length > 0;
    where.textContent = rows.length || page ? `page ${page + 1}${next ? '' : ', the last'}` : '';
    back.disabled = page === 0;
    forward.disabled = !next;
    renderPicked();
    if (held) {
      const again = body.querySelector(`tr[data-id="${CSS.escape(held)}"]`);
      (inPick ? again?.querySelector('input') : again)?.focus({ preventScroll: true });
    }
  }
  function renderPicked() {
    compare.disabled = picked.length !== 2;
    compare.textContent = picked.length === 2 ? `Compare ${picked[0]} and ${picked[1]}` : picked.length === 1 ? `Compare ${picked[0]} with …` : 'Compare two';
    for (const tr of body.rows) {
      const on = picked.includes(tr.dataset.id);
      tr.classList.toggle('picked', on);
      const box = tr.querySelector('input');
      if (box) box.checked = on;
    }
  }
  function pick(id) {
    // The oldest choice gives way to a third.
    picked = picked.includes(id) ? picked.filter((p) => p !== id) : [...picked.slice(-1), id];
    renderPicked();
  }

  function row(r, i) {
    const id = r.experiment ?? '';
    const box = id && h('input', { type: 'checkbox', tabindex: '-1', 'aria-label': `Compare ${id}`, onchange: () => pick(id), onclick: (e) => e.stopPropagation() });
    return h('tr', { tabindex: i === active ? '0' : '-1', 'data-id': id, 'aria-label': `${id} ${r.outcome ?? ''} ${us(r.latency_us)}`, onclick: () => id && open(id), onfocus: () => setActive(i),
      onkeydown: (e) => {
        if (e.target !== e.currentTarget) return;
        const moves = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 };
        if (moves[e.key] && !e.metaKey && !e.ctrlKey) { e.preventDefault(); focusRow(i + moves[e.key]); }
        else if (e.key === 'Home') { e.preventDefault(); focusRow(0); }
        else if (e.key === 'End') { e.preventDefault(); focusRow(rows.length - 1); }
        else if (e.key === 'Enter' && id) { e.preventDefault(); open(id); }
        else if (e.key === ' ' && id) { e.preventDefault(); pick(id); }
      } },
    h('td', { class: 'pick', onclick: (e) => { e.stopPropagation(); if (e.target === e.currentTarget && id) pick(id); } }, box),
    h('td', { class: 'id' }, id || r.source, everywhere && h('small', {}, ` ${r.model} · ${r.gpu}`)),
    h('td', { class: 'outcome' }, outcomeBadge(r.outcome ?? 'imported')),
    h('td', { class: 'number' }, us(r.latency_us), r.latency_kind && h('small', {}, ` ${kindWord(r.latency_kind)}`)),
    h('td', { class: 'number wide' }, r.pct_of_roofline === undefined ? '–' : `${digits(r.pct_of_roofline, 3)} %`),
    h('td', { class: 'wide' }, r.reason ?? ''),
    h('td', { class: 'wider' }, h('code', { title: r.schedule_id }, (r.schedule_id ?? '').slice(0, 11))),
    h('td', { class: 'wider text' }, r.description ?? ''),
    h('td', { class: 'wider' }, h('time', { datetime: r.ended ?? '' }, when(r.ended))));
  }
  function setActive(i) {
    if (body.rows[active]) body.rows[active].tabIndex = -1;
    active = i;
    if (body.rows[i]) body.rows[i].tabIndex = 0;
  }
  function focusRow(i) {
    if (i < 0 || i >= rows.length) return;
    setActive(i);
    body.rows[i].focus();
  }

  return {
    section,
    show(id) {
      if (campaign === id) return;
      campaign = id;
      picked = [];
      first();
    },
    // Something ended: only the first page can change under its reader.
    refresh() { if (page === 0) load(); },
    focusFirst() { focusRow(active); },
    focusFilter() { schedule.focus(); },
    compare() { compare.click(); },
    turn(by) { go(page + by); },
    describe: () => `${count(rows.length)} rows`,
  };
}

function when(text) {
  if (!text) return '';
  const t = new Date(text);
  const today = new Date().toDateString() === t.toDateString();
  return today ? t.toLocaleTimeString([], { hour12: false }) : t.toLocaleString([], { dateStyle: 'short', timeStyle: 'short' });
}
