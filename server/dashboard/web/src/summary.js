// The campaign in numbers, and the jobs that work on it.
import { card, count, digits, fill, h, kindWord, seconds, us } from './dom.js';

const tile = (label, value, detail) => h('div', { class: 'tile' }, h('dt', {}, label), h('dd', {}, value, detail && h('small', {}, detail)));

export function stateBadge(c) {
  const words = { baseline: 'needs a baseline', optimizing: 'optimizing', done: c.done_reason ? `done: ${c.done_reason}` : 'done' };
  return h('span', { class: 'state', 'data-state': c.state }, words[c.state] ?? c.state);
}

export function summarySection() {
  const head = h('div', { class: 'campaignhead' });
  const tiles = h('dl', { class: 'tiles' });
  const section = h('section', { class: 'summary', 'aria-label': 'Campaign' }, head, tiles);
  return {
    section,
    update(c) {
      fill(head, h('h1', {}, c.workload), h('span', { class: 'chips' }, [c.gpu, c.device_kind, c.regime, c.campaign].map((t) => h('span', { class: 'chip' }, t))), stateBadge(c));
      const best = c.best;
      fill(tiles,
        tile('Best', best ? us(best.latency_us) : 'none yet', best && `${kindWord(best.latency_kind)} · ${best.experiment}`),
        tile('Over own baseline', c.speedup_over_own_baseline ? `×${digits(c.speedup_over_own_baseline, 3)}` : '–', c.baseline && `from ${us(c.baseline.latency_us)}`),
        tile('Of roofline', best?.pct_of_roofline ? `${digits(best.pct_of_roofline, 3)} %` : '–', best?.bound_us ? `floor ${us(best.bound_us)}` : null),
        tile('Experiments', count(c.experiments.ended), `${count(c.counts.kept)} kept${c.experiments.running ? ` · ${c.experiments.running} running` : ''}${c.experiments.queued ? ` · ${c.experiments.queued} queued` : ''}`),
        tile('Since the last kept', count(c.plateau.non_keeps), c.plateau.limit ? `of ${c.plateau.limit}` : 'no limit'),
        tile('Time spent', seconds(c.time.spent_s), c.time.budget_s ? `of ${seconds(c.time.budget_s)}` : null));
    },
  };
}

export function jobsCard() {
  const list = h('ul', { class: 'jobs' });
  const section = card('Jobs', null, list);
  return {
    section,
    update(jobs) {
      const shown = jobs.filter((j, i) => j.state === 'running' || j.state === 'queued' || (i < 3 && j.state === 'failed'));
      section.hidden = shown.length === 0;
      fill(list, shown.map((j) => h('li', {},
        h('span', { class: 'jobname' }, `${j.kind.replace(/^amk_/, '')} ${j.model ?? ''}`), h('span', { class: 'quiet' }, j.state),
        j.state === 'running' && h('progress', { max: j.total > 0 ? j.total : 1, value: j.total > 0 ? j.done : undefined, 'aria-label': `Progress of ${j.job_id}` }),
        h('span', { class: 'quiet jobtext' }, j.error ?? j.message ?? ''))));
    },
  };
}
