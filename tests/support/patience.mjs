// How many times longer a script waits before it gives up: the sanitizers' builds are slow. Set by tests/tsan/run.
export const patience = Number(process.env.AMK_PATIENCE ?? 1);
