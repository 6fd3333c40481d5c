// Dashboard variables: their values from Prometheus, and their way into queries and titles.
import { ask, askInstant } from './prometheus.js';

const ALL = '$__all';
const LABEL_VALUES = /^label_values\((?:(?<selector>.+),)?\s*(?<label>[a-zA-Z_]\w*)\)$/s;
const QUERY_RESULT = /^query_result\((?<query>.+)\)$/s;
const REFERENCE = /\$(\w+)|\$\{(\w+)(?::(\w+))?\}|\[\[(\w+)(?::(\w+))?\]\]/g;

/** By name: {definition, label, options, value, all}. `chosen`: values from the command line. */
export async function loadVariables(definitions, range, chosen) {
  const variables = {};
  for (const definition of definitions) {
    const options = await optionsOf(definition, variables, range);
    const wish = chosen[definition.name] ?? definition.current?.value;
    const unset = wish === undefined || wish === '' || wish.length === 0;
    const all = unset ? Boolean(definition.includeAll) : [wish].flat().includes(ALL);
    variables[definition.name] = {
      definition,
      label: definition.label || definition.name,
      options,
      all,
      value: all ? options : unset || definition.type === 'datasource' ? options[0] : wish,
    };
  }
  return variables;
}

export function shown({ definition, all, value }) {
  if (definition.type === 'adhoc') return '+';
  return all ? 'All' : [value ?? 'None'].flat().map((v) => named(definition, v)).join(' + ');
}

/** The text of a custom variable's value, which is shown and which `${name:text}` stands for. */
function named({ type, options }, value) {
  const option = type === 'custom' && options?.find((each) => each.value === value);
  return option ? option.text : value;
}

/** `text` with macros, a repeated panel's own value, and variables put in; unknown names stay. */
export function interpolate(text, variables, macros = {}, scoped = {}) {
  if (typeof text !== 'string') return text;
  return text.replace(REFERENCE, (whole, plain, braced, format, old, oldFormat) => {
    const name = plain ?? braced ?? old;
    if (name in macros) return macros[name];
    if (name in scoped) return scoped[name];
    return name in variables ? written(variables[name], format ?? oldFormat) : whole;
  });
}

async function optionsOf(definition, variables, range) {
  switch (definition.type) {
    case 'datasource':
      return ['Prometheus'];
    case 'custom':
      return definition.query.split(',').map((item) => item.split(' : ').pop().trim());
    case 'interval':
      return definition.query.split(',');
    case 'adhoc':
      return [];
    case 'query':
      return (await queried(definition, variables, range)).sort();
    default: // constant, textbox
      return [definition.query];
  }
}

async function queried(definition, variables, range) {
  const raw = definition.query?.query ?? definition.query ?? definition.definition;
  const query = interpolate(raw, variables);
  const times = { start: range.from.unix(), end: range.to.unix() };
  const labels = query.match(LABEL_VALUES)?.groups;
  if (labels) {
    const match = labels.selector ? { 'match[]': labels.selector.trim() } : {};
    return filtered(definition.regex, await ask(`label/${labels.label}/values`, { ...match, ...times }));
  }
  const inner = query.match(QUERY_RESULT)?.groups.query;
  if (!inner) throw new Error(`variable ${definition.name}: cannot read ${query}`);
  const rows = await askInstant(inner, range);
  return filtered(
    definition.regex,
    rows.map(({ metric: { __name__ = '', ...rest }, value }) => {
      const pairs = Object.entries(rest).map(([key, text]) => `${key}="${text}"`);
      return `${__name__}{${pairs.join(',')}} ${value[1]} ${value[0] * 1000}`;
    }),
  );
}

function filtered(regex, values) {
  if (!regex) return values;
  const slashed = regex.match(/^\/(.*)\/([a-z]*)$/s);
  const pattern = slashed ? new RegExp(slashed[1], slashed[2]) : new RegExp(regex);
  const found = values.map((value) => value.match(pattern)).filter(Boolean);
  return [...new Set(found.map((m) => m.groups?.value ?? m[1] ?? m[0]))];
}

function written({ definition, all, value }, format) {
  if (all && definition.allValue) return definition.allValue;
  const values = [value ?? ''].flat().map(String);
  if (format === 'csv') return values.join(',');
  if (format === 'pipe') return values.join('|');
  if (format === 'queryparam') return values.map((v) => `var-${definition.name}=${v}`).join('&');
  const takesRegex = definition.multi || definition.includeAll;
  if (format === 'text') return values.map((v) => named(definition, v)).join(',');
  if (format === 'raw' || (!takesRegex && format !== 'regex')) {
    return values.join(',');
  }
  // In a PromQL string: the regular expression's backslashes are doubled.
  const escaped = values.map((v) => v.replace(/[\\^$*+?.()|{}[\]]/g, '\\\\$&'));
  return escaped.length === 1 ? escaped[0] : `(${escaped.join('|')})`;
}
