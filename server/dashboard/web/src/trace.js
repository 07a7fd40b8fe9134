// The token timeline: one row an SM, time to the right, coloured by what the SM does. The server thins it out to what the window can show.
import { get } from './api.js';
import { card, colour, digits, fill, h, onRedraw, prepare, us } from './dom.js';

const words = { 'wait-dependency': 'waits for another task', 'wait-weights': 'waits for weights', compute: 'computes', publish: 'publishes' };
const swatch = (kind) => h('span', { class: 'swatch', 'data-kind': kind });
const axis = 22;

export function traceView() {
  const canvas = h('canvas', { tabindex: '0', role: 'img', class: 'trace' });
  const box = h('div', { class: 'strip' }, canvas);
  const hover = h('p', { class: 'hover' }, ' ');
  const legend = h('ul', { class: 'legend' });
  const tool = (text, label, f) => h('button', { type: 'button', class: 'small', 'aria-label': label, title: label, onclick: f }, text);
  const tools = h('div', { class: 'tools' }, tool('−', 'Zoom out', () => zoom(2)), tool('+', 'Zoom in', () => zoom(0.5)), tool('‹', 'Earlier', () => pan(-0.5)), tool('›', 'Later', () => pan(0.5)), tool('all', 'Whole token', () => load(null)));
  const element = h('div', {}, tools, box, hover, legend);
  let id = null, data = null, request = 0, drag = null;
  onRedraw(box, () => draw());

  async function load(window_) {
    if (!id) return;
    request += 1;
    const mine = request;
    try {
      const bins = Math.max(200, Math.min(1600, Math.round(box.clientWidth || 800)));
      const answer = await get('trace', { schedule_id: id, bins, ...(window_ ? { from_us: window_[0], to_us: window_[1] } : {}) });
      if (mine !== request) return;
      data = answer;
      draw();
    } catch (e) {
      if (mine === request) hover.textContent = e.message;
    }
  }
  function zoom(by, around) {
    if (!data) return;
    const span = data.to_us - data.from_us, center = around ?? (data.from_us + data.to_us) / 2;
    const whole = data.end_us - data.begin_us;
    if (span * by >= whole) return load(null);
    const wide = Math.max(0.01, span * by);
    const from = Math.max(data.begin_us, Math.min(data.end_us - wide, center - wide * ((center - data.from_us) / span)));
    load([from, from + wide]);
  }
  function pan(share) {
    if (!data) return;
    const span = data.to_us - data.from_us;
    const from = Math.max(data.begin_us, Math.min(data.end_us - span, data.from_us + span * share));
    load([from, from + span]);
  }
  const height = () => Math.max(80, Math.min(460, data.sms.length * (data.sms.length > 80 ? 3 : 6)));
  const timeAt = (x) => data.from_us + ((x - 0) / canvas.clientWidth) * (data.to_us - data.from_us);

  function draw() {
    if (!data || !box.clientWidth) return;
    const w = box.clientWidth, tall = height();
    const c = prepare(canvas, w, tall + axis);
    const rowHeight = tall / data.sms.length, gap = rowHeight > 3 ? 0.5 : 0;
    const scale = w / (data.to_us - data.from_us);
    const paint = data.kinds.map((k) => colour(`t-${k}`));
    c.fillStyle = colour('sunken');
    c.fillRect(0, 0, w, tall);
    // Another warp publishes while the next task runs: a strip along the foot of the row, painted after what it overlaps.
    const publish = data.kinds.indexOf('publish');
    for (const strip of [false, true]) {
      const top = strip ? 0.6 : 0, high = rowHeight * (1 - top) - gap;
      if (data.events) {
        const { sm, start_us: start, dur_us: dur, kind } = data.events;
        for (let i = 0; i < sm.length; i += 1) {
          if ((kind[i] === publish) !== strip) continue;
          c.fillStyle = paint[kind[i]];
          c.fillRect((start[i] - data.from_us) * scale, (sm[i] + top) * rowHeight, Math.max(0.6, dur[i] * scale - 0.3), high);
        }
      } else {
        const { sm, bin, length, kind } = data.runs, wide = w / data.bins;
        for (let i = 0; i < sm.length; i += 1) {
          if ((kind[i] === publish) !== strip) continue;
          c.fillStyle = paint[kind[i]];
          c.fillRect(bin[i] * wide, (sm[i] + top) * rowHeight, length[i] * wide, high);
        }
      }
    }
    c.fillStyle = colour('ink-soft');
    c.font = '11px system-ui, sans-serif';
    const ticks = w < 500 ? 3 : 6;
    for (let i = 0; i <= ticks; i += 1) {
      c.textAlign = i === 0 ? 'left' : i === ticks ? 'right' : 'center';
      c.fillText(us(Number((data.from_us + ((data.to_us - data.from_us) * i) / ticks - data.begin_us).toPrecision(5))), (w * i) / ticks, tall + 15);
    }
    // Shares of the SMs' time; publishing overlaps what runs beside it and is left out of what remains.
    const whole = data.sms.length * (data.to_us - data.from_us);
    const parts = data.kinds.map((k, i) => [k, words[k], data.totals_us[i] / whole]);
    parts.push(['idle', 'idle', Math.max(0, 1 - parts.reduce((sum, [k, , share]) => sum + (k === 'publish' ? 0 : share), 0))]);
    const told = ([, what, share]) => `${what} ${digits(100 * share, 3)} %`;
    fill(legend, parts.map((p) => h('li', {}, swatch(p[0]), told(p))));
    canvas.setAttribute('aria-label', `${data.sms.length} SMs over ${us(data.to_us - data.from_us)}: ${parts.map(told).join(', ')}. Plus and minus zoom, arrows move.`);
    if (drag) {
      c.fillStyle = colour('band');
      c.fillRect(Math.min(drag.from, drag.to), 0, Math.abs(drag.to - drag.from), tall);
    }
  }

  function under(x, y) {
    const row = Math.floor((y / height()) * data.sms.length);
    if (row < 0 || row >= data.sms.length) return ' ';
    const t = timeAt(x);
    let text = `SM ${data.sms[row]} at ${us(Number((t - data.begin_us).toPrecision(6)))}`;
    if (data.events) {
      const e = data.events;
      for (let i = 0; i < e.sm.length; i += 1)
        if (e.sm[i] === row && e.start_us[i] <= t && t < e.start_us[i] + e.dur_us[i]) text += ` · ${data.names[e.name[i]]} · ${words[data.kinds[e.kind[i]]]} for ${us(e.dur_us[i])}`;
    } else {
      const bin = Math.floor(((t - data.from_us) / (data.to_us - data.from_us)) * data.bins), r = data.runs;
      for (let i = 0; i < r.sm.length; i += 1)
        if (r.sm[i] === row && r.bin[i] <= bin && bin < r.bin[i] + r.length[i]) text += ` · mostly ${words[data.kinds[r.kind[i]]]} (zoom in for tasks)`;
    }
    return text;
  }
  canvas.addEventListener('pointermove', (e) => {
    if (!data) return;
    hover.textContent = under(e.offsetX, e.offsetY);
    if (drag) {
      drag.to = e.offsetX;
      draw();
    }
  });
  canvas.addEventListener('pointerdown', (e) => {
    if (e.pointerType === 'mouse' && data) drag = { from: e.offsetX, to: e.offsetX };
  });
  addEventListener('pointerup', () => {
    if (!drag) return;
    const { from, to } = drag;
    drag = null;
    if (Math.abs(to - from) > 4) load([Math.min(timeAt(from), timeAt(to)), Math.max(timeAt(from), timeAt(to))]);
    else draw();
  });
  canvas.addEventListener('dblclick', () => load(null));
  canvas.addEventListener('keydown', (e) => {
    const act = { '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2), ArrowLeft: () => pan(-0.25), ArrowRight: () => pan(0.25), 0: () => load(null) }[e.key];
    if (!act || e.ctrlKey || e.metaKey) return;
    e.preventDefault();
    act();
  });
  return { element, show(next) { id = next; data = null; hover.textContent = 'Loading…'; load(null).then(() => { if (data) hover.textContent = ' '; }); } };
}

// The timelines that the workspace has; those of this campaign's best and baseline first.
export function traceCard() {
  const view = traceView();
  const choice = h('select', { 'aria-label': 'Traced schedule', onchange: () => view.show(choice.value) });
  const section = card('Token timeline', choice, view.element);
  section.hidden = true;
  let shown = '';
  return {
    section,
    async update(campaign) {
      const { traces } = await get('traces');
      section.hidden = traces.length === 0;
      const roles = new Map([[campaign.baseline?.schedule_id, 'baseline'], [campaign.best?.schedule_id, 'best']]);
      const ids = traces.map((t) => t.schedule_id).sort((a, b) => Number(roles.has(b)) - Number(roles.has(a)));
      const key = JSON.stringify([ids, [...roles]]);
      if (key === shown || !ids.length) return;
      shown = key;
      const before = choice.value;
      fill(choice, ids.map((i) => h('option', { value: i }, `${i.slice(0, 11)}${roles.has(i) ? ` (${roles.get(i)})` : ''}`)));
      choice.value = ids.includes(before) ? before : ids[0];
      if (choice.value !== before || !before) view.show(choice.value);
    },
  };
}
