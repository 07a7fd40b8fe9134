// The list of campaigns, most recently changed first.
import { count, fill, h, us } from './dom.js';
import { stateBadge } from './summary.js';

export function campaignList(nav, choose) {
  const list = h('ul', {});
  const more = h('p', { class: 'quiet' });
  fill(nav, h('h2', {}, 'Campaigns'), list, more);
  let shown = '';
  return (state, selected) => {
    const text = JSON.stringify([state.campaigns, selected]);
    if (text === shown) return;
    shown = text;
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    fill(list, state.campaigns.map((c) => h('li', {},
      h('button', { type: 'button', class: 'campaign', 'data-id': c.campaign, 'aria-current': c.campaign === selected ? 'true' : null, onclick: () => choose(c.campaign) },
        h('span', { class: 'name' }, c.workload), stateBadge(c),
        h('span', { class: 'quiet' }, `${c.gpu} · ${c.device_kind}`), h('span', { class: 'figure' }, c.best_latency_us === null ? `${count(c.ended)} ended` : `${us(c.best_latency_us)} · ${count(c.ended)}`)))));
    more.textContent = state.campaigns_total > state.campaigns.length ? `and ${count(state.campaigns_total - state.campaigns.length)} older` : '';
    if (focused) list.querySelector(`[data-id="${CSS.escape(focused)}"]`)?.focus();
  };
}
