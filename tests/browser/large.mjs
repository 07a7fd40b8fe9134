// large.mjs AMK WORKSPACE SCREENSHOT_FOLDER: figures of the page on a large campaign, as JSON lines; run by bench/dashboard. A frame is the time between
// two animation callbacks: what a person feels as stutter is the longest of them.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { Program, launch, open, sleep } from './harness.mjs';

const [amkPath, workspace, shots] = process.argv.slice(2);
mkdirSync(shots, { recursive: true });
const amk = new Program(amkPath);
const own = amk.workspace;
amk.workspace = workspace;
const print = (metric, value, unit) => console.log(JSON.stringify({ bench: 'dashboard', metric, value: Math.round(value * 10) / 10, unit }));
const browser = await launch();
try {
  const { url } = await amk.run('dashboard');
  const page = await open(browser, null);
  await page.evaluateOnNewDocument(() => {
    window.longest = 0;
    let last = null;
    const tick = (t) => {
      if (last !== null) window.longest = Math.max(window.longest, t - last);
      last = t;
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  });
  const take = () => page.evaluate(() => { const l = window.longest; window.longest = 0; return l; });
  const begin = Date.now();
  await page.goto(url);
  await page.waitForSelector('.plot canvas');
  print('browser_plot_first', Date.now() - begin, 'ms');
  await page.waitForSelector('tbody tr');
  print('browser_first_contentful_paint', await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime), 'ms');
  await page.waitForSelector('.pair .barrow');
  await sleep(1000);
  print('browser_longest_frame_loading', await take(), 'ms');
  for (let i = 0; i < 30; i += 1) {
    await page.mouse.wheel({ deltaY: i < 15 ? 120 : -120 });
    await sleep(30);
  }
  print('browser_longest_frame_scrolling', await take(), 'ms');
  const plot = await (await page.$('.u-over')).boundingBox();
  for (let i = 0; i < 40; i += 1) await page.mouse.move(plot.x + 20 + i * 15, plot.y + 60 + (i % 7) * 10);
  print('browser_longest_frame_hovering_plot', await take(), 'ms');
  for (let i = 0; i < 10; i += 1) {
    await page.keyboard.press('n');
    await sleep(150);
  }
  print('browser_longest_frame_paging', await take(), 'ms');
  // Another theme draws everything anew, as a live update does.
  for (let i = 0; i < 5; i += 1) {
    await page.keyboard.press('l');
    await sleep(200);
  }
  print('browser_longest_frame_redrawing', await take(), 'ms');
  await page.evaluate(() => { localStorage.clear(); scrollTo(0, 0); });
  await page.screenshot({ path: join(shots, 'large.png') });
} finally {
  await browser.close();
  await amk.run('serve', '--stop', '--force');
  amk.workspace = own;
  await amk.remove();
}
