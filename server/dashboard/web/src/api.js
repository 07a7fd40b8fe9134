// The daemon's data endpoints: requests with the token, and the live state as server-sent events that reconnect.

const base = '/dashboard/api/';
// Per tab, so that a reload keeps it; the address bar loses it at once.
const key = 'amk-token';

export function takeToken() {
  const at = new URLSearchParams(location.hash.slice(1));
  const given = at.get('token');
  if (given) {
    sessionStorage.setItem(key, given);
    at.delete('token');
    const rest = at.toString();
    history.replaceState(null, '', location.pathname + (rest ? `#${rest}` : ''));
  }
}
export const setToken = (token) => sessionStorage.setItem(key, token.trim());

const headers = () => {
  const token = sessionStorage.getItem(key);
  return token ? { Authorization: `Bearer ${token}` } : {};
};

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function errorOf(response) {
  const text = await response.text();
  try {
    return new ApiError(response.status, JSON.parse(text).error.message);
  } catch {
    return new ApiError(response.status, text.trim() || response.statusText);
  }
}

// Values may be arrays; empty ones are left out.
export async function get(name, query = {}, signal) {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(query))
    for (const one of Array.isArray(v) ? v : [v])
      if (one !== undefined && one !== null && one !== '') q.append(k, one);
  const text = q.toString();
  const response = await fetch(base + name + (text ? `?${text}` : ''), { headers: headers(), signal, cache: 'no-store' });
  if (!response.ok) throw await errorOf(response);
  return response.json();
}

// EventSource cannot send the token in a header, and a token in the URL would end up in logs.
// onState(state); onConnection('live' | 'connecting' | 'refused', detail).
export function watch(onState, onConnection) {
  const quietLimit = 25_000; // the server says something every 10 s
  let wait = 500, wake = null, controller = null;
  const kick = () => wake?.();
  addEventListener('online', kick);
  // A browser opens six connections to a server at most: pages that nobody sees must not hold one each. They let go after a while and
  // come back when they are seen again.
  let parked = false;
  const parkLater = () => {
    if (document.hidden) setTimeout(() => {
      if (!document.hidden) return;
      parked = true;
      controller?.abort();
    }, 20_000);
  };
  document.addEventListener('visibilitychange', () => {
    parkLater();
    if (document.hidden) return;
    parked = false;
    kick();
  });

  async function once() {
    controller = new AbortController();
    let watchdog;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => controller.abort(), quietLimit);
    };
    alive();
    try {
      const response = await fetch(`${base}events`, { headers: { ...headers(), Accept: 'text/event-stream' }, signal: controller.signal, cache: 'no-store' });
      if (!response.ok) throw await errorOf(response);
      wait = 500;
      parkLater();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let pending = '';
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        alive();
        pending += value;
        for (let end; (end = pending.indexOf('\n\n')) >= 0; pending = pending.slice(end + 2)) {
          let kind = 'message', data = '';
          for (const line of pending.slice(0, end).split('\n')) {
            if (line.startsWith('event: ')) kind = line.slice(7);
            if (line.startsWith('data: ')) data += line.slice(6);
          }
          if (kind === 'state') {
            onConnection('live');
            onState(JSON.parse(data));
          }
        }
      }
    } finally {
      clearTimeout(watchdog);
      controller.abort();
    }
  }

  (async () => {
    for (;;) {
      try {
        await once();
        onConnection('connecting');
      } catch (e) {
        onConnection(e instanceof ApiError && (e.status === 401 || e.status === 403) ? 'refused' : 'connecting', e.message);
      }
      await new Promise((resolve) => {
        wake = resolve;
        if (!parked) setTimeout(resolve, wait * (0.75 + Math.random() / 2));
      });
      wake = null;
      wait = Math.min(wait * 2, 10_000);
    }
  })();
  return { retry: () => { wait = 500; kick(); } };
}
