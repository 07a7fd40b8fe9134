// Best so far: every latency, the steps of the best, its noise band, the physical floor.
import uPlot from 'uplot';
import { card, colour, count, digits, fill, h, kindWord, onRedraw, outcomes, us } from './dom.js';

export function plotCard(openExperiment) {
  const box = h('div', { class: 'plot', role: 'img' });
  const note = h('p', { class: 'quiet note' });
  const hover = h('p', { class: 'hover', 'aria-live': 'off' }, ' ');
  let series = null, plot = null, log = false, floor = false;
  const toggle = (label, title, flip) =>
    h('button', { type: 'button', class: 'small', title, 'aria-pressed': 'false', onclick: (e) => {
      e.currentTarget.setAttribute('aria-pressed', String(flip()));
      draw();
    } }, label);
  const section = card(
    'Best so far',
    h('div', { class: 'tools' },
      toggle('log', 'Logarithmic latency', () => (log = !log)),
      toggle('floor', 'Always include the physical floor', () => (floor = !floor))),
    box, hover, note);
  onRedraw(box, () => draw());

  // One x for all: the union of both lists, each value null where it has no point.
  function aligned() {
    const { points, best, total } = series;
    const xs = [...new Set([...points.n, ...best.n, total])].filter((n) => n > 0).sort((a, b) => a - b);
    const place = new Map(xs.map((x, i) => [x, i]));
    const blank = () => new Array(xs.length).fill(null);
    const byOutcome = new Map();
    const experiment = blank();
    points.n.forEach((n, i) => {
      const o = points.outcome[i];
      if (!byOutcome.has(o)) byOutcome.set(o, blank());
      byOutcome.get(o)[place.get(n)] = points.latency_us[i];
      experiment[place.get(n)] = points.experiment[i];
    });
    const step = blank(), low = blank(), high = blank();
    let at = -1;
    const measured = best.mad_us.some((m) => m !== null);
    xs.forEach((x, i) => {
      while (at + 1 < best.n.length && best.n[at + 1] <= x) at += 1;
      if (at < 0) return;
      step[i] = best.latency_us[at];
      if (measured && best.mad_us[at] !== null) {
        low[i] = step[i] - best.mad_us[at];
        high[i] = step[i] + best.mad_us[at];
      }
    });
    return { xs, byOutcome, experiment, step, low, high, measured };
  }

  function draw() {
    plot?.destroy();
    plot = null;
    box.replaceChildren();
    if (!series || !box.clientWidth) return;
    if (series.points.n.length === 0) {
      fill(box, h('p', { class: 'quiet empty' }, 'No correct experiment yet: a latency is shown only with a correctness PASS.'));
      return;
    }
    const d = aligned();
    const values = series.points.latency_us;
    let least = Math.min(...values), most = Math.max(...values);
    const inView = series.floor_us !== null && (floor || series.floor_us >= 0.5 * least);
    if (inView) least = Math.min(least, series.floor_us);
    const pad = (most - least) * 0.06 || most * 0.05;
    const range = log ? [least / 1.1, most * 1.1] : [Math.max(0, least - pad), most + pad];
    const ink = colour('ink-soft'), grid = colour('grid');
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: '12px system-ui, sans-serif' };
    const stepped = uPlot.paths.stepped({ align: 1 });
    const lists = [d.xs], specs = [{ label: 'n' }], bands = [];
    for (const [o, list] of [...d.byOutcome].sort((a, b) => b[0] - a[0])) {
      lists.push(list);
      const kept = outcomes[o] === 'kept';
      specs.push({ label: outcomes[o], stroke: colour(`o-${outcomes[o]}`), paths: () => null,
        points: { show: true, size: kept ? 8 : 5, width: 1, fill: colour(`o-${outcomes[o]}`) } });
    }
    if (d.measured) {
      specs.push({ label: 'noise above', stroke: 'transparent', paths: stepped, points: { show: false } },
        { label: 'noise below', stroke: 'transparent', paths: stepped, points: { show: false } });
      bands.push({ series: [lists.length, lists.length + 1], fill: colour('band') });
      lists.push(d.high, d.low);
    }
    lists.push(d.step);
    specs.push({ label: 'best so far', stroke: colour('accent'), width: 2, paths: stepped, points: { show: false } });
    if (inView) {
      lists.push(d.xs.map(() => series.floor_us));
      specs.push({ label: 'floor', stroke: colour('floor'), width: 1.5, dash: [6, 4], points: { show: false } });
    }
    plot = new uPlot({
      width: box.clientWidth, height: box.clientWidth < 500 ? 240 : 320, bands, series: specs, legend: { show: false },
      scales: { x: { time: false, range: (u, min, max) => (min === max ? [min - 1, max + 1] : [min, max]) }, y: { distr: log ? 3 : 1, range } },
      axes: [{ ...axis, label: 'experiments ended', labelFont: '12px system-ui, sans-serif', labelSize: 20, size: 40, values: (u, ticks) => ticks.map((v) => (Number.isInteger(v) ? count(v) : '')) },
        { ...axis, size: 62, values: (u, ticks) => ticks.map((v) => (v === null ? '' : us(v))) }],
      cursor: { points: { show: false }, drag: { x: true, y: false } },
      hooks: { setCursor: [(u) => showAt(d, u.cursor.idx)] },
    }, d.xs, box);
    plot.setData(lists);
    plot.over.addEventListener('click', () => {
      const id = nearest(d, plot?.cursor.idx);
      if (id) openExperiment(id);
    });
    const words = series.kind === 'predicted'
      ? 'Latencies are predictions of the cost model, which have no noise band.'
      : d.measured ? 'The band is the best’s median absolute deviation, above and below.' : '';
    const floorWords = series.floor_us === null ? '' : inView ? ` Dashed: the physical floor, ${us(series.floor_us)}.` : ` The physical floor, ${us(series.floor_us)}, is far below: “floor” shows it.`;
    const thinned = series.total > 2 * series.points.n.length ? ` Of ${count(series.total)} experiments some are drawn; the fastest and slowest of every stretch are among them.` : '';
    note.textContent = words + floorWords + thinned + ' Drag to zoom, double-click to see all, click a point for its verdict.';
    const last = series.best.latency_us.at(-1);
    box.setAttribute('aria-label', `Latency of ${count(series.total)} experiments. Best ${kindWord(series.kind)} latency ${us(last)}${series.floor_us === null ? '' : `, floor ${us(series.floor_us)}`}. The table below has the numbers.`);
  }

  function nearest(d, at) {
    if (at === null || at === undefined) return null;
    for (let k = 0; k < 40; k += 1) {
      if (d.experiment[at - k]) return d.experiment[at - k];
      if (d.experiment[at + k]) return d.experiment[at + k];
    }
    return null;
  }

  function showAt(d, at) {
    if (at === null || at === undefined) {
      hover.textContent = ' ';
      return;
    }
    const parts = [`n ${count(d.xs[at])}`];
    for (const [o, list] of d.byOutcome)
      if (list[at] !== null) parts.push(`${d.experiment[at]} ${outcomes[o]} ${us(list[at])}`);
    if (d.step[at] !== null) {
      parts.push(`best so far ${us(d.step[at])}`);
      if (series.floor_us) parts.push(`${digits((100 * series.floor_us) / d.step[at], 3)} % of roofline`);
    }
    hover.textContent = parts.join(' · ');
  }

  return { section, update(next) { series = next; draw(); }, clear() { series = null; draw(); note.textContent = ''; } };
}
