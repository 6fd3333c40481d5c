// Annotation queries as the spans in which their series were there.
import { askRange, secondsOf } from './prometheus.js';
import { interpolate } from './variables.js';

/** [{from, to, color}] in milliseconds. An annotation that fails is told on the console. */
export async function loadAnnotations(definitions, range, variables, scrapeInterval) {
  const spans = [];
  for (const definition of definitions) {
    const query = interpolate(definition.expr ?? definition.target?.expr, variables);
    if (!definition.enable || !query) continue;
    const whole = (range.to.valueOf() - range.from.valueOf()) / 1000;
    const step = Math.max(secondsOf(scrapeInterval), whole / 1000);
    try {
      for (const series of await askRange(query, range, step)) {
        const times = series.values.filter(([, text]) => text !== '0').map(([time]) => time);
        spans.push(...runs(times, step).map((run) => ({ ...run, color: definition.iconColor })));
      }
    } catch (error) {
      console.error(`annotation ${definition.name}: ${error.message}`);
    }
  }
  return spans;
}

function runs(times, step) {
  const found = [];
  for (const time of times) {
    const last = found.at(-1);
    if (last && time * 1000 - last.to <= step * 1500) last.to = time * 1000;
    else found.push({ from: time * 1000, to: time * 1000 });
  }
  return found;
}
