// Prometheus' HTTP API, and Grafana's macros that depend on range, width and scrape interval.
import { rangeUtil } from '@grafana/data';

const MAX_POINTS = 11000; // of a series, in one answer of Prometheus

const TRIES = 3; // Chromium drops requests when any network of the machine changes

export async function ask(path, parameters) {
  const response = await fetched(`/prometheus/api/v1/${path}?${new URLSearchParams(parameters)}`);
  const body = await response.json().catch(() => ({ error: `HTTP ${response.status}` }));
  if (body.status !== 'success') throw new Error(body.error ?? 'query failed');
  return body.data;
}

async function fetched(address, left = TRIES - 1) {
  try {
    return await fetch(address);
  } catch (error) {
    if (!left) throw error;
    return fetched(address, left - 1);
  }
}

export const secondsOf = (text) => rangeUtil.intervalToMs(text) / 1000;

export function number(text) {
  if (text === '+Inf') return Infinity;
  if (text === '-Inf') return -Infinity;
  return Number(text); // NaN included
}

/** Step of a panel's query in seconds, and the macros that go with it. */
export function stepAndMacros({ target, panel, range, width, scrapeInterval }) {
  const milliseconds = range.to.valueOf() - range.from.valueOf();
  const scrape = secondsOf(scrapeInterval);
  const smallest = secondsOf(target.interval || panel.interval || scrapeInterval);
  const wished = rangeUtil.roundInterval(milliseconds / (panel.maxDataPoints || width)) / 1000;
  const step = Math.max(wished, smallest, milliseconds / 1000 / MAX_POINTS);
  const whole = Math.round(milliseconds / 1000);
  return {
    step,
    macros: {
      __interval: `${step}s`,
      __interval_ms: step * 1000,
      __rate_interval: `${Math.max(step + scrape, 4 * scrape)}s`,
      __range: `${whole}s`,
      __range_s: whole,
      __range_ms: milliseconds,
      __from: range.from.valueOf(),
      __to: range.to.valueOf(),
    },
  };
}

/** Series of a range query, at steps that are multiples of the step: as Grafana asks. */
export async function askRange(query, range, step) {
  const aligned = (moment) => Math.floor(moment.valueOf() / 1000 / step) * step;
  const data = await ask('query_range', {
    query,
    start: aligned(range.from),
    end: aligned(range.to),
    step,
  });
  return data.result;
}

/** Series of an instant query at the end of the range; a scalar is a series without labels. */
export async function askInstant(query, range) {
  const data = await ask('query', { query, time: range.to.valueOf() / 1000 });
  return data.resultType === 'scalar' ? [{ metric: {}, value: data.result }] : data.result;
}
