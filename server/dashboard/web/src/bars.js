// Two small lists of bars: which knobs moved the latency, and where the best one's time goes.
import { card, count, digits, fill, h, seconds, sortedPairs, us } from './dom.js';

function bar(label, share, value, title, kind = '') {
  const inner = h('span', { class: `fillbar ${kind}` });
  inner.style.width = `${Math.max(0.5, Math.min(100, share * 100))}%`;
  return h('li', { class: 'barrow', title }, h('span', { class: 'barlabel' }, label), h('span', { class: 'bartrack', 'aria-hidden': 'true' }, inner), h('span', { class: 'barvalue' }, value));
}

export function importanceCard() {
  const list = h('ul', { class: 'bars' });
  const note = h('p', { class: 'quiet note' });
  const section = card('Knobs that matter', null, list, note);
  return {
    section,
    update({ knobs }) {
      fill(list, knobs.map((k) => {
        const choices = k.choices.map((c) => `${c.value}: ${us(c.latency_us)} (${c.observations})`).join('\n');
        return bar(k.knob, k.explains, `${digits(k.explains * 100, 2)} %`, `Mean latency by choice, fastest first:\n${choices}`);
      }));
      note.textContent = knobs.length
        ? `Share of the variance of log latency that a knob explains, from ${count(knobs[0].observations)} correct experiments (confidence: ${knobs[0].confidence}). Choices are confounded: a hint, no proof.`
        : 'Needs at least six correct experiments whose latencies differ.';
    },
  };
}

// As the report names them; what a phase is, where its name does not say it.
const phaseTitles = { search: 'deciding what to try: strategy, prediction, lowering', waiting: 'for the GPU, or for another candidate on it', check: 'against the oracle', other: 'the store, comparisons, the rest' };

export function phaseList(seconds_by_phase) {
  const pairs = sortedPairs(seconds_by_phase);
  const total = pairs.reduce((sum, [, v]) => sum + v, 0);
  return h('ul', { class: 'bars' }, pairs.map(([name, v]) => bar(name, v / total, seconds(v), `${digits((100 * v) / total, 3)} %${phaseTitles[name] ? `: ${phaseTitles[name]}` : ''}`, name === 'waiting' ? 'sync' : '')));
}

export function phasesCard() {
  const box = h('div');
  const section = card('Where the search’s time went', null, box);
  return {
    section,
    update({ phases_s: phases }) {
      fill(box, phases && Object.keys(phases).length ? phaseList(phases) : h('p', { class: 'quiet' }, 'Nothing has ended yet.'));
    },
  };
}

const regionNames = { lm_head: 'LM head', mlp: 'MLP', sync: 'waiting between instructions' };

export function regionList(regions) {
  const pairs = sortedPairs(regions).filter(([, v]) => typeof v === 'number');
  const total = pairs.reduce((sum, [, v]) => sum + v, 0);
  return h('ul', { class: 'bars' }, pairs.map(([name, v]) => bar(regionNames[name] ?? name, v / total, us(v), `${digits((100 * v) / total, 3)} %`, name === 'sync' ? 'sync' : '')));
}

export function regionsCard() {
  const box = h('div');
  const section = card('Where the best one’s time goes', null, box);
  return {
    section,
    update(verdict) {
      const known = verdict && verdict.regions && Object.keys(verdict.regions).length > 0;
      fill(box, known ? regionList(verdict.regions) : h('p', { class: 'quiet' }, 'Not known for this campaign’s best yet.'));
    },
  };
}
