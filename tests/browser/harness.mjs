// What the checks stand on: a workspace with campaigns, the program, and pages that remember what went wrong in them.
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import puppeteer from 'puppeteer-core';
import { patience } from '../support/patience.mjs';

const execute = promisify(execFile);
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Checks {
  passed = 0;
  failed = 0;
  that(what, condition, detail) {
    if (condition) this.passed += 1;
    else {
      this.failed += 1;
      console.log(`FAILED ${what}${detail === undefined ? '' : `: ${JSON.stringify(detail).slice(0, 600)}`}`);
    }
    return Boolean(condition);
  }
  equal(what, got, wanted) {
    return this.that(what, JSON.stringify(got) === JSON.stringify(wanted), { got, wanted });
  }
  // Waits for it; on failure the last value is shown.
  async eventually(what, look, wanted = (v) => v, ms = 20_000) {
    const until = Date.now() + ms * patience;
    let last;
    do {
      try { last = await look(); } catch (e) { last = String(e.message); }
      if (last !== undefined && wanted(last) === true) return this.that(what, true);
      await sleep(40);
    } while (Date.now() < until);
    return this.that(what, false, last);
  }
}

export class Program {
  constructor(path) {
    this.path = path;
    this.workspace = mkdtempSync(join(tmpdir(), 'amk-browser-'));
  }
  // The one JSON document of a verb; exit codes 0 and 1 (not good, but judged) are answers.
  async run(...args) {
    try {
      return JSON.parse((await execute(this.path, ['--workspace', this.workspace, ...args], { maxBuffer: 1 << 26 })).stdout);
    } catch (e) {
      if (e.code === 1 && e.stdout) return JSON.parse(e.stdout);
      throw new Error(`amk ${args.join(' ')}: ${e.stderr ?? e.message}`);
    }
  }
  async remove() {
    try { await this.run('serve', '--stop', '--force'); } catch { /* not running */ }
    await sleep(300);
    rmSync(this.workspace, { recursive: true, force: true, maxRetries: 5 });
  }
}

export const launch = () => puppeteer.launch({
  executablePath: process.env.AMK_CHROMIUM,
  // Chromium's sandbox cannot be set up by root.
  args: process.getuid() === 0 ? ['--no-sandbox'] : [],
});

// A page of its own profile. `troubles` collects script errors, policy violations and requests to anywhere else.
export async function open(browser, url, { width = 1280, height = 900, dark = false, scale = 1, touch = false } = {}) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  page.troubles = [];
  page.on('pageerror', (e) => page.troubles.push(`error: ${e.message}`));
  page.on('dialog', (d) => { page.troubles.push(`dialog: ${d.message()}`); d.dismiss(); });
  page.on('console', (m) => { if (['error', 'warn'].includes(m.type()) && !m.text().startsWith('Failed to load resource')) page.troubles.push(`console: ${m.text()}`); });
  page.on('request', (r) => { if (!/^(http:\/\/127\.0\.0\.1:|data:)/.test(r.url())) page.troubles.push(`request: ${r.url()}`); });
  await page.setViewport({ width, height, deviceScaleFactor: scale, isMobile: touch, hasTouch: touch });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }]);
  if (url) await page.goto(url);
  return page;
}

export const text = (page, selector) => page.$eval(selector, (e) => e.textContent);
export const texts = (page, selector) => page.$$eval(selector, (all) => all.map((e) => e.textContent));
export const connection = (page) => page.$eval('.connection', (e) => e.dataset.state);
// Values of the tiles by their label.
export const tiles = (page) => page.$$eval('.tile', (all) => Object.fromEntries(all.map((t) => [t.querySelector('dt').textContent, { value: t.querySelector('dd').firstChild.textContent, detail: t.querySelector('small')?.textContent ?? '' }])));
export const press = async (page, ...keys) => { for (const k of keys) await page.keyboard.press(k); };
