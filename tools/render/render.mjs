// node render.mjs DASHBOARD.json --prometheus URL --out FILE.png    (README.md has the options)
import fs from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';

import puppeteer from 'puppeteer-core';

import { serve } from './server.mjs';

const TALLEST = 12_000;
// Nothing that Chromium would do by itself on a network.
const FLAGS = [
  ...['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
  ...['--disable-background-networking', '--disable-component-update', '--disable-sync'],
  ...['--hide-scrollbars', '--force-color-profile=srgb'],
];

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    prometheus: { type: 'string', default: 'http://127.0.0.1:9090' },
    out: { type: 'string', default: 'dashboard.png' },
    from: { type: 'string' },
    to: { type: 'string' },
    var: { type: 'string', multiple: true, default: [] },
    panel: { type: 'string', multiple: true, default: [] },
    until: { type: 'string' },
    height: { type: 'string' },
    width: { type: 'string', default: '1400' },
    theme: { type: 'string', default: 'dark' },
    'scrape-interval': { type: 'string', default: '5s' },
    'expand-rows': { type: 'boolean', default: false },
    report: { type: 'string' },
    chromium: { type: 'string', default: '/usr/bin/chromium' },
    timeout: { type: 'string', default: '60' },
  },
});

if (positionals.length !== 1) {
  console.error('usage: node render.mjs DASHBOARD.json [options]: see README.md');
  process.exit(2);
}
const dashboard = JSON.parse(await fs.readFile(positionals[0], 'utf8'));
if (options.until) dashboard.panels = above(dashboard, options.until);
const report = await draw({
  dashboard,
  panels: options.panel.length ? stacked(dashboard, options.panel) : undefined,
  from: options.from,
  to: options.to,
  variables: chosen(options.var),
  width: Number(options.width),
  theme: options.theme,
  scrapeInterval: options['scrape-interval'],
  expandRows: options['expand-rows'],
});
await tell(report);
process.exit(report.errors.length || report.queries.some((query) => query.error) ? 1 : 0);

async function draw(job) {
  const server = await serve(job, options.prometheus);
  const profile = await fs.mkdtemp(path.join(os.tmpdir(), 'kvscope-chromium-'));
  const browser = await puppeteer.launch({
    executablePath: options.chromium,
    userDataDir: profile,
    args: FLAGS,
  });
  try {
    return await shoot(await browser.newPage(), job, server.url);
  } finally {
    await browser.close();
    await fs.rm(profile, { recursive: true, force: true });
    server.close();
  }
}

async function shoot(page, { width, to }, url) {
  const said = [];
  page.on('pageerror', (error) => said.push(`page: ${error.stack ?? error}`));
  page.on('console', (line) => {
    const { url = '' } = line.location();
    const fixedWidth = url.includes('/fonts/roboto'); // the system's is good enough
    if (line.type() === 'error' && !fixedWidth) said.push(`console: ${line.text()} ${url}`);
  });
  if (/^\d+$/.test(to ?? '')) await page.evaluateOnNewDocument(beginAt, Number(to));
  await page.setViewport({ width, height: 1000 });
  await page.goto(url);
  const timeout = Number(options.timeout) * 1000;
  const finished = await page.waitForFunction('window.report', { timeout }).catch(() => null);
  const result = (await finished?.jsonValue()) ?? { queries: [], errors: ['the page did not finish'] };
  const whole = Math.min(TALLEST, Math.max(200, result.height ?? 1000));
  await page.setViewport({ width, height: options.height ? Number(options.height) : whole });
  await new Promise((resolve) => setTimeout(resolve, 400)); // charts draw anew
  await page.screenshot({ path: options.out });
  return { ...result, said };
}

/** In the page: its clock begins at that moment, so that "5 minutes ago" counts to the range's end. */
function beginAt(moment) {
  const Real = Date;
  const ahead = Real.now() - moment;
  const now = () => Real.now() - ahead;
  globalThis.Date = new Proxy(Real, {
    construct: (target, given, maker) => Reflect.construct(target, given.length ? given : [now()], maker),
    apply: () => new Real(now()).toString(),
    get: (target, key) => (key === 'now' ? now : Reflect.get(target, key)),
  });
}

/** "name=value" pairs; a name given twice has both values. */
function chosen(pairs) {
  const result = {};
  for (const pair of pairs) {
    const [name, value] = pair.split(/=(.*)/s);
    result[name] = name in result ? [result[name], value].flat() : value;
  }
  return result;
}

/** Everything above the row of that id. */
function above({ panels }, id) {
  const end = panels.findIndex((panel) => panel.type === 'row' && String(panel.id) === id);
  if (end < 0) throw new Error(`no row ${id} in ${positionals[0]}`);
  return panels.slice(0, end);
}

/** The named panels alone, one above the other, as wide as the picture. */
function stacked({ panels }, ids) {
  const all = panels.flatMap((panel) => [panel, ...(panel.panels ?? [])]);
  let y = 0;
  return ids.map((id) => {
    const panel = all.find((one) => String(one.id) === id);
    if (!panel) throw new Error(`no panel ${id} in ${positionals[0]}`);
    const gridPos = { ...panel.gridPos, x: 0, y, w: 24 };
    y += gridPos.h;
    return { ...panel, gridPos };
  });
}

async function tell({ queries, errors, said }) {
  for (const { panel, title, refId, query, series, nan, error } of queries) {
    const verdict = error ? 'ERROR' : !series ? 'EMPTY' : nan === series ? 'NAN  ' : 'ok   ';
    const detail = error ? `${error}: ${query}` : `${series} series`;
    console.log(`${verdict} [${panel}] ${title} ${refId}: ${detail}`);
  }
  for (const error of errors) console.log(`DRAWING ${error}`);
  for (const line of new Set(said)) console.log(line.slice(0, 300));
  if (options.report) await fs.writeFile(options.report, JSON.stringify({ queries, errors, said }, null, 2));
}
