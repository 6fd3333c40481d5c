// The page: reads its job, asks Prometheus, draws the dashboard, leaves a report on `window`.
import { dateMath, dateTime } from '@grafana/data';
import { initPluginTranslations } from '@grafana/i18n';
import { GlobalStyles, ThemeContext } from '@grafana/ui';
import { createRoot } from 'react-dom/client';

import { loadAnnotations } from './annotations.js';
import { configured, registerTransformations, transformed } from './fields.js';
import { loadFonts } from './fonts.js';
import { runQueries } from './frames.js';
import { place } from './layout.js';
import { Panel } from './panels.jsx';
import { job, theme } from './theme.js';
import { interpolate, loadVariables, shown } from './variables.js';

const MARGIN = 16;
const SETTLE_MILLISECONDS = 1200; // Grafana's components measure themselves after the first paint

const report = { queries: [], errors: [] };

async function main() {
  await initPluginTranslations('kvscope-render');
  registerTransformations();
  await loadFonts();
  const { dashboard, scrapeInterval } = job;
  const range = rangeOf(job.from ?? dashboard.time?.from, job.to ?? dashboard.time?.to);
  const variables = await loadVariables(dashboard.templating?.list ?? [], range, job.variables);
  const annotations = dashboard.annotations?.list ?? [];
  const spans = await loadAnnotations(annotations, range, variables, scrapeInterval);
  const width = job.width - 2 * MARGIN;
  const items = await Promise.all(
    place(job.panels ?? dashboard.panels, variables, width, job).map(async (box) => {
      const data = box.panel.type === 'row' ? null : await dataOf(box, range, variables);
      return { ...box, data, title: interpolate(box.panel.title, variables, {}, box.scoped) };
    }),
  );
  createRoot(document.getElementById('root')).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <Page {...{ dashboard, range, variables, items, spans, width }} />
    </ThemeContext.Provider>,
  );
  document.body.style.background = theme.colors.background.canvas;
  await new Promise((resolve) => setTimeout(resolve, SETTLE_MILLISECONDS));
  report.height = document.getElementById('root').scrollHeight;
}

function rangeOf(from = 'now-1h', to = 'now') {
  return { from: momentOf(from), to: momentOf(to, { roundUp: true }), raw: { from, to } };
}

function momentOf(text, options = {}) {
  const moment = /^\d+$/.test(text) ? dateTime(Number(text)) : dateMath.toDateTime(text, options);
  if (!moment?.isValid()) throw new Error(`${text} is no time: expected now-15m, or milliseconds`);
  return moment;
}

async function dataOf({ panel, scoped, w: width }, range, variables) {
  const { scrapeInterval } = job;
  const records = report.queries;
  const asked = { panel, range, variables, scoped, width: Math.round(width), scrapeInterval, records };
  const data = await runQueries(asked);
  try {
    const frames = await transformed(panel, data.frames);
    return { ...data, frames: configured(panel, frames, variables, scoped) };
  } catch (error) {
    noted(panel, error);
    return { frames: [], errors: [...data.errors, String(error)] };
  }
}

function noted(panel, error) {
  report.errors.push(`[${panel.id}] ${panel.title}: ${error?.stack ?? error}`);
}

function Page({ dashboard, range, variables, items, spans, width }) {
  const { colors, typography } = theme;
  const height = Math.max(0, ...items.map(({ y, h }) => y + h));
  const page = {
    ...{ width: job.width, padding: MARGIN, fontSize: 14, lineHeight: 1.5 },
    ...{ background: colors.background.canvas, color: colors.text.primary },
    fontFamily: typography.fontFamily,
  };
  return (
    <div style={page}>
      {job.panels ? null : <Head {...{ dashboard, range, variables }} />}
      <div style={{ position: 'relative', width, height }}>
        {items.map(({ panel, title, x, y, w, h, data }, index) => (
          <div key={index} style={{ position: 'absolute', left: x, top: y, width: w, height: h }}>
            {panel.type === 'row' ? (
              <Row panel={panel} title={title} />
            ) : (
              <Panel
                {...{ panel, title, data, range, spans }}
                width={w}
                height={h}
                onError={(error) => noted(panel, error)}
              />
            )}
          </div>
        ))}
      </div>
    </div>
  );
}

function Head({ dashboard, range, variables }) {
  const { text, border, background } = theme.colors;
  const chip = { border: `1px solid ${border.medium}`, borderRadius: 4, marginRight: 8, fontSize: 13 };
  const named = { background: background.secondary, padding: '4px 8px', color: text.secondary };
  return (
    <>
      <div style={{ fontSize: 18, marginBottom: 10 }}>
        {dashboard.title}
        <span style={{ float: 'right', fontSize: 13, color: text.secondary }}>
          {(dashboard.links ?? []).map((link, index) => (
            <span key={index} style={{ marginRight: 14, color: text.link }}>
              {link.title}
            </span>
          ))}
          {range.from.format('HH:mm:ss')} – {range.to.format('HH:mm:ss')}
        </span>
      </div>
      <div style={{ display: 'flex', flexWrap: 'wrap', gap: '6px 0', marginBottom: 12 }}>
        {Object.values(variables)
          .filter(({ definition }) => definition.hide !== 2)
          .map((variable) => (
            <span key={variable.label} style={{ ...chip, display: 'inline-flex' }}>
              <span style={named}>{variable.label}</span>
              <span style={{ padding: '4px 10px' }}>{shown(variable)}</span>
            </span>
          ))}
      </div>
    </>
  );
}

function Row({ panel, title }) {
  const inside = panel.collapsed ? ` (${panel.panels?.length ?? 0} panels)` : '';
  return (
    <div style={{ lineHeight: '30px', fontSize: 16, fontWeight: 500 }}>
      {panel.collapsed ? '▸' : '▾'} {title}
      <span style={{ color: theme.colors.text.secondary, fontSize: 12 }}>{inside}</span>
    </div>
  );
}

main()
  .catch((error) => report.errors.push(String(error?.stack ?? error)))
  .finally(() => {
    window.report = report;
  });
