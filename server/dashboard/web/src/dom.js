// Elements and formats. Whatever comes from the store is set as text: there is no way from a string to markup here.

// h('a', {class: 'x', onclick: f, 'aria-label': t}, 'text', child, …); null and false children are left out.
export function h(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') e.addEventListener(name.slice(2), value);
    else if (name === 'value' || name === 'checked' || name === 'disabled' || name === 'selected') e[name] = value;
    else e.setAttribute(name, value === true ? '' : String(value));
  }
  append(e, children);
  return e;
}

function append(e, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    e.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function fill(e, ...children) {
  e.replaceChildren();
  append(e, children);
}

export const card = (title, extras, ...children) =>
  h('section', { class: 'card' }, h('div', { class: 'cardhead' }, h('h2', {}, title), extras), ...children);

// --- numbers
export function digits(v, n = 4) {
  if (v === null || v === undefined || !Number.isFinite(v)) return '–';
  if (v === 0) return '0';
  const a = Math.abs(v);
  if (a >= 1e4 && a < 1e9) return Math.round(v).toLocaleString('en');
  if (a >= 1e9 || a < 1e-3) return v.toExponential(2).replace('e+', 'e');
  return String(Number(v.toPrecision(n)));
}
// Microseconds, as people write them: 717.3 µs, 1.234 ms, 0.88 ns.
export function us(v) {
  if (v === null || v === undefined) return '–';
  const a = Math.abs(v);
  if (a >= 1e6) return `${digits(v / 1e6)} s`;
  if (a >= 1e3) return `${digits(v / 1e3)} ms`;
  if (a < 0.1 && a > 0) return `${digits(v * 1e3, 3)} ns`;
  return `${digits(v)} µs`;
}
export function seconds(s) {
  if (s === null || s === undefined) return '–';
  if (s < 100) return `${digits(s, 3)} s`;
  if (s < 600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  if (s < 6000) return `${Math.round(s / 60)} min`;
  return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
}
export const count = (n) => Number(n ?? 0).toLocaleString('en');
export const kindWord = (kind) => (kind === 'measured-gpu' ? 'measured' : (kind ?? ''));

export const outcomes = ['kept', 'revert', 'inconclusive', 'failed', 'crash', 'timeout', 'rejected', 'lost'];
export const outcomeBadge = (o) => h('span', { class: 'outcome', 'data-outcome': o ?? '' }, o ?? 'running');

// Colours live in the style sheet, for both themes.
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// A canvas of CSS size w × h in device pixels; returns its context, scaled.
export function prepare(canvas, w, hh) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(w * ratio);
  canvas.height = Math.round(hh * ratio);
  canvas.style.width = `${w}px`;
  canvas.style.height = `${hh}px`;
  const c = canvas.getContext('2d');
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, w, hh);
  return c;
}

// Calls f when the element's width or the theme changes.
export function onRedraw(element, f) {
  let width = 0;
  new ResizeObserver(() => {
    const now = element.clientWidth;
    if (now && now !== width) {
      width = now;
      f();
    }
  }).observe(element);
  document.addEventListener('themechange', () => element.isConnected && f());
}

export const sortedPairs = (object) => Object.entries(object ?? {}).sort((a, b) => b[1] - a[1]);
