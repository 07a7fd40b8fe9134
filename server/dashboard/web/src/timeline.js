// Outcomes in the order experiments ended: one bar for every few of them.
import { card, colour, count, fill, h, onRedraw, outcomeBadge, outcomes, prepare } from './dom.js';

export function timelineCard() {
  const canvas = h('canvas', { role: 'img' });
  const box = h('div', { class: 'strip' }, canvas);
  const legend = h('ul', { class: 'legend' });
  const hover = h('p', { class: 'hover' }, ' ');
  const section = card('Outcomes', null, box, hover, legend);
  let series = null;
  onRedraw(box, () => draw());

  canvas.addEventListener('pointermove', (e) => {
    const bars = series?.timeline.counts ?? [];
    const i = Math.floor((e.offsetX / canvas.clientWidth) * Math.max(bars.length, 24));
    if (!bars[i]) return;
    const { per } = series.timeline;
    const first = i * per + 1, last = Math.min(series.total, (i + 1) * per);
    const what = bars[i].map((n, o) => (n ? `${n} ${outcomes[o]}` : null)).filter(Boolean).join(', ');
    hover.textContent = first === last ? `experiment ${count(first)}: ${outcomes[bars[i].findIndex(Boolean)]}` : `experiments ${count(first)} to ${count(last)}: ${what}`;
  });
  canvas.addEventListener('pointerleave', () => { hover.textContent = ' '; });

  function draw() {
    if (!series || !box.clientWidth) return;
    const w = box.clientWidth, height = 64;
    const c = prepare(canvas, w, height);
    const { counts, per } = series.timeline;
    const step = w / Math.max(counts.length, 24);
    const gap = step > 5 ? 1 : 0;
    counts.forEach((bar, i) => {
      let y = height;
      bar.forEach((n, o) => {
        if (!n) return;
        const tall = (n / per) * height;
        c.fillStyle = colour(`o-${outcomes[o]}`);
        c.fillRect(i * step, y - tall, Math.max(1, step - gap), tall);
        y -= tall;
      });
    });
    const totals = outcomes.map((_, o) => counts.reduce((sum, bar) => sum + bar[o], 0));
    canvas.setAttribute('aria-label', `Outcomes of ${count(series.total)} experiments: ${totals.map((n, o) => (n ? `${n} ${outcomes[o]}` : null)).filter(Boolean).join(', ')}`);
    fill(legend, totals.map((n, o) => n > 0 && h('li', {}, outcomeBadge(outcomes[o]), ` ${count(n)}`)),
      per > 1 && h('li', { class: 'quiet' }, `one bar: ${count(per)} experiments`));
  }
  return { section, update(next) { series = next; draw(); } };
}
