// What a sensible agent does next, from nothing but the texts it was shown: doctor, propose, a mistake and its cure, a baseline, a loop as a job, the best
// suggestion that the loop left, kept on its verdict, report. Every id and config comes out of a result.

export const workload = { model: 'toy', gpu: 'rtx5090', device: 'cpu' };
export const mistake = { knob: 'pipelining_dept', value: 3, meant: 'pipelining_depth' };

export function parsed(text) {
  try { return JSON.parse(text); } catch { return undefined; }
}

// The incumbent with what a suggestion sets: whole keys of the config.
export function changed(config, set) {
  return { ...config, ...set };
}

function suggested(proposal) {
  const [first] = proposal?.suggestions ?? [];
  return { config: changed(proposal?.incumbent ?? {}, first?.set ?? {}), hypothesis: first?.why ?? 'no suggestion' };
}

// `results`: what came of each call so far, {tool, text}. Returns the next {tool, args}, or null.
export function decide(results) {
  const shown = results.map((r) => parsed(r.text) ?? {});
  const last = shown.at(-1) ?? {};
  const kept = (description) => ({ tool: 'amk_orchestrate_record', args: { status: 'kept', verdict_id: last.verdict_id, campaign: last.campaign, description } });
  switch (results.length) {
    case 0: return { tool: 'amk_doctor', args: {} };
    case 1: return { tool: 'amk_propose', args: workload };
    case 2: return { tool: 'amk_eval', args: { ...workload, config: { [mistake.knob]: mistake.value } } };
    case 3: return { tool: 'amk_eval', args: { ...workload, config: { [last.error?.data?.did_you_mean]: mistake.value }, hypothesis: 'the cure that the error named' } };
    case 4: return kept('baseline');
    // Cold: with what the cost model says before the first evaluation, three find its best config of toy, and no suggestion could be kept after it.
    case 5: return { tool: 'amk_loop', args: { ...workload, budget: 3, cold: true, wait_s: 0 } };
    default: break;
  }
  if (results.length > 30) return null;
  const job = shown.find((r) => r.job_id)?.job_id;
  const ends = results.map((_, i) => i).filter((i) => results[i].tool === 'amk_job' && !['queued', 'running'].includes(shown[i].state));
  if (ends.length === 0) return { tool: 'amk_job', args: { job_id: job, wait_s: 20 } };
  switch (results.length - 1 - ends[0]) {
    case 0: return { tool: 'amk_job', args: { job_id: job } };  // what a client that had lost the answer would do
    case 1: return { tool: 'amk_propose', args: workload };
    case 2: return { tool: 'amk_eval', args: { ...workload, ...suggested(last) } };
    case 3: return kept('the first suggestion after the loop');
    case 4: return { tool: 'amk_orchestrate_report', args: { campaign: last.campaign } };
    default: return null;
  }
}
