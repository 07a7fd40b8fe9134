// Dialogs: one experiment with its verdict, the difference of two configs, the keys.
import { get } from './api.js';
import { digits, fill, h, kindWord, outcomeBadge, us } from './dom.js';
import { phaseList, regionList } from './bars.js';
import { traceView } from './trace.js';

const facts = (pairs) => h('dl', { class: 'facts' }, pairs.filter(([, v]) => v !== null && v !== undefined && v !== '' && v !== '–').map(([k, v]) => h('div', {}, h('dt', {}, k), h('dd', {}, v))));
const part = (title, ...children) => h('section', { class: 'part' }, h('h3', {}, title), ...children);
const yes = (v) => (v === null || v === undefined ? null : v ? 'yes' : 'no');
const json = (value) => h('pre', { tabindex: '0' }, JSON.stringify(value, null, 1));
const bytes = (n) => (n === null || n === undefined ? null : n >= 1 << 20 ? `${digits(n / (1 << 20), 3)} MiB` : n >= 1024 ? `${digits(n / 1024, 3)} KiB` : `${n} B`);

export function dialogs() {
  const content = h('div', { class: 'dialogbody' });
  const title = h('h2', { id: 'dialogtitle' });
  const box = h('dialog', { 'aria-labelledby': 'dialogtitle', onclick: (e) => e.target === box && box.close() },
    h('div', { class: 'dialoghead' }, title, h('button', { type: 'button', class: 'close', 'aria-label': 'Close', onclick: () => box.close() }, '×')), content);
  document.body.append(box);
  let from = null;
  box.addEventListener('close', () => {
    content.replaceChildren();
    // The browser gives the focus back itself, unless what had it is gone; a key pressed since may have moved it.
    if (document.activeElement === document.body && from?.isConnected) from.focus({ preventScroll: true });
  });
  function show(heading, ...children) {
    fill(title, heading);
    fill(content, ...children);
    if (!box.open) {
      from = document.activeElement;
      box.showModal();
    }
    content.scrollTop = 0;
  }

  async function experiment(id) {
    try {
      const e = await get('experiment', { id });
      show([`${e.experiment} `, outcomeBadge(e.outcome)], ...experimentParts(e));
    } catch (error) {
      show(id, h('p', { class: 'error' }, error.message));
    }
  }
  async function diff(a, b) {
    try {
      const d = await get('diff', { a, b });
      const knobs = Object.entries(d.differs);
      const cell = (v) => h('td', {}, h('code', {}, v === null || v === undefined ? 'not set' : JSON.stringify(v)));
      show(`${d.a.experiment} and ${d.b.experiment}`,
        facts([[d.a.experiment, `${us(d.a.latency_us)} ${kindWord(d.a.latency_kind)}`], [d.b.experiment, `${us(d.b.latency_us)} ${kindWord(d.b.latency_kind)}`],
          ['ratio', d.ratio === null ? 'not comparable' : `${digits(d.ratio, 4)} (${d.ratio > 1 ? `${d.b.experiment} is faster` : d.ratio < 1 ? `${d.a.experiment} is faster` : 'equal'})`]]),
        knobs.length ? h('table', { class: 'diff' }, h('thead', {}, h('tr', {}, ['knob', d.a.experiment, d.b.experiment].map((t) => h('th', { scope: 'col' }, t)))),
          h('tbody', {}, knobs.map(([k, [x, y]]) => h('tr', {}, h('th', { scope: 'row' }, k), cell(x), cell(y))))) : h('p', {}, 'Both have the same config.'));
    } catch (error) {
      show(`${a} and ${b}`, h('p', { class: 'error' }, error.message));
    }
  }
  function keys() {
    const rows = [['/', 'to the filter'], ['t', 'to the table'], ['↑ ↓ or k j', 'row before, row after'], ['Enter', 'open the row’s verdict'], ['Space', 'choose the row for comparing'], ['d', 'compare the two chosen'], ['n p', 'next page, previous page'], ['[ ]', 'campaign before, campaign after'], ['l', 'light, dark, as the system'], ['Esc', 'close'], ['?', 'this list']];
    show('Keys', h('dl', { class: 'keys' }, rows.map(([k, t]) => h('div', {}, h('dt', {}, h('kbd', {}, k)), h('dd', {}, t)))));
  }
  return { experiment, diff, keys, isOpen: () => box.open };
}

function experimentParts(e) {
  const v = e.verdict;
  const out = [facts([
    ['latency', e.latency_us === null ? null : `${us(e.latency_us)} ${kindWord(e.latency_kind)}`], ['of roofline', e.pct_of_roofline === null ? null : `${digits(e.pct_of_roofline, 3)} %`], ['floor', e.bound_us === null ? null : us(e.bound_us)],
    ['reason', e.reason], ['correctness', e.correctness], ['withheld', v?.withheld], ['quarantined', e.quarantined ? 'yes: faster than physics allows' : null],
    ['strategy', e.strategy], ['loop', e.loop], ['device', e.device], ['took', `${digits(e.duration_s, 3)} s`], ['ended', e.ended && new Date(e.ended).toLocaleString()], ['schedule', h('code', {}, e.schedule_id)], ['verdict', v && h('code', {}, v.verdict_id)]])];
  if (e.description) out.push(part('Description', h('p', { class: 'usertext' }, e.description)));
  if (v?.rejected) out.push(part('Rejected', h('p', {}, h('code', {}, v.rejected.rule), ' ', v.rejected.message), Object.keys(v.rejected.witness ?? {}).length > 0 && json(v.rejected.witness)));
  if (v?.correctness) {
    const c = v.correctness;
    out.push(part('Against the oracle', facts([['largest error', `${digits(c.max_abs_err, 3)} of ${digits(c.bound, 3)} allowed`], ['mean error', digits(c.mean_abs_err, 3)], ['KL divergence', digits(c.kl, 3)], ['top-1 agreement', digits(c.top1_agreement * 100, 4) + ' %'], ['bitwise repeatable', yes(c.bitwise_repeatable)], ['positions', String(c.positions_checked)]])));
  }
  if (v?.noise) out.push(part('Noise', facts([['median absolute deviation', us(v.noise.mad_us)], ['samples', String(v.noise.samples)], ['rounds', String(v.noise.rounds)], ['clock', `${digits(v.noise.clock_mhz)} MHz`], ['throttled', yes(v.noise.throttled)]])));
  if (v?.versus) {
    const x = v.versus;
    const exact = Array.isArray(x.ci95) && x.ci95[0] === x.ci95[1];
    const interval = !Array.isArray(x.ci95) ? '' : exact ? 'none: predictions are exact' : `${digits(x.ci95[0])} to ${digits(x.ci95[1])}`;
    out.push(part('Against the incumbent', facts([['decision', x.decision], ['ratio', `${digits(x.ratio)} (incumbent / this)`], ['95 % interval', interval], ['incumbent', h('code', {}, x.incumbent)]])));
  }
  if (v?.regions && Object.keys(v.regions).length) out.push(part('Where the time goes', regionList(v.regions)));
  const phases = Object.fromEntries(Object.entries(e.phases ?? {}).map(([name, spent]) => [name.replace(/_us$/, ''), spent / 1e6]).filter(([, s]) => s > 0));
  if (Object.keys(phases).length) out.push(part('Where its evaluation’s time went', phaseList(phases)));
  if (e.traced) {
    const view = traceView();
    out.push(part('Token timeline', view.element));
    view.show(e.schedule_id);
  }
  out.push(part('Built', facts([['tasks', v?.tasks === null ? null : v?.tasks?.toLocaleString('en')], ['weights', bytes(v?.weight_bytes)], ['registers', v?.registers], ['shared memory', bytes(v?.smem_bytes)], ['build', v?.build_ms === null || v?.build_ms === undefined ? null : `${digits(v.build_ms, 3)} ms`]])));
  if (v?.notes) out.push(part('Notes', h('p', { class: 'usertext' }, v.notes)));
  out.push(part('Config', json(e.config)));
  return out;
}
