// A panel's queries as Grafana's data frames, with a record of what each query gave.
import { createDataFrame, FieldType } from '@grafana/data';

import { askInstant, askRange, number, stepAndMacros } from './prometheus.js';
import { interpolate } from './variables.js';

/** Returns {frames, errors}; appends one record per query to `records`. */
export async function runQueries({ panel, range, variables, scoped, width, scrapeInterval, records }) {
  const targets = (panel.targets ?? []).filter((target) => !target.hide);
  const answers = await Promise.all(
    targets.map(async (target) => {
      const { step, macros } = stepAndMacros({ target, panel, range, width, scrapeInterval });
      const query = interpolate(target.expr ?? '', variables, macros, scoped);
      const record = { panel: panel.id, title: panel.title, refId: target.refId, query, step };
      records.push(record);
      try {
        const several = targets.length > 1;
        return { frames: await framesOf({ target, query, range, step, several, record }) };
      } catch (error) {
        record.error = error.message;
        return { frames: [], error: `${target.refId}: ${error.message}` };
      }
    }),
  );
  return {
    frames: answers.flatMap((answer) => answer.frames),
    errors: answers.flatMap((answer) => answer.error ?? []),
  };
}

async function framesOf({ target, query, range, step, several, record }) {
  if (target.instant && !target.range) {
    const rows = await askInstant(query, range);
    record.series = rows.length;
    record.nan = rows.filter((row) => row.value[1] === 'NaN').length;
    if (target.format === 'table') return [tableFrame(target, rows, several)];
    return rows.map((row) => seriesFrame(target, query, row.metric, [row.value], step, rows.length));
  }
  const series = await askRange(query, range, step);
  record.series = series.length;
  record.nan = series.filter((one) => one.values.every((v) => v[1] === 'NaN')).length;
  if (target.format === 'heatmap') return heatmapFrames(target, series, step);
  return series.map((one) => seriesFrame(target, query, one.metric, one.values, step, series.length));
}

function seriesFrame(target, query, metric, points, step, count) {
  const { __name__, ...labels } = metric;
  const name = legend(target.legendFormat, metric, query, count);
  const times = points.map(([seconds]) => seconds * 1000);
  const interval = step * 1000;
  return createDataFrame({
    refId: target.refId,
    name,
    fields: [
      { name: 'Time', type: FieldType.time, config: { interval }, values: times },
      {
        name: 'Value',
        type: FieldType.number,
        labels,
        config: { displayNameFromDS: name },
        values: points.map(([, text]) => number(text)),
      },
    ],
  });
}

function tableFrame(target, rows, several) {
  const labels = [...new Set(rows.flatMap((row) => Object.keys(row.metric)))].sort();
  const times = rows.map((row) => row.value[0] * 1000);
  const column = (label) => ({
    name: label,
    type: FieldType.string,
    config: { filterable: true },
    values: rows.map((row) => row.metric[label] ?? ''),
  });
  return createDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: times },
      ...labels.map(column),
      {
        name: several ? `Value #${target.refId}` : 'Value',
        type: FieldType.number,
        values: rows.map((row) => number(row.value[1])),
      },
    ],
  });
}

/** Cumulative `le` buckets taken apart: one field a bucket, in order. */
function heatmapFrames(target, series, step) {
  const buckets = series
    .filter((one) => one.metric.le !== undefined)
    .sort((a, b) => number(a.metric.le) - number(b.metric.le))
    .map((one) => ({
      le: one.metric.le,
      at: new Map(one.values.map(([time, text]) => [time, number(text)])),
    }));
  const times = [...new Set(buckets.flatMap((bucket) => [...bucket.at.keys()]))].sort((a, b) => a - b);
  if (!times.length) return [];
  const below = (index, time) => (index < 0 ? 0 : (buckets[index].at.get(time) ?? 0));
  return [
    createDataFrame({
      refId: target.refId,
      fields: [
        {
          name: 'Time',
          type: FieldType.time,
          config: { interval: step * 1000 },
          values: times.map((seconds) => seconds * 1000),
        },
        ...buckets.map(({ le }, index) => ({
          name: le,
          type: FieldType.number,
          values: times.map((t) => Math.max(0, below(index, t) - below(index - 1, t))),
        })),
      ],
    }),
  ];
}

function legend(format, metric, query, count) {
  if (format && format !== '__auto') {
    return format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => metric[label] ?? '');
  }
  if (format === '__auto' && count === 1) return metric.__name__ ?? query;
  const { __name__ = '', ...labels } = metric;
  const pairs = Object.entries(labels).map(([key, value]) => `${key}="${value}"`);
  return pairs.length ? `${__name__}{${pairs.join(', ')}}` : __name__ || query;
}
