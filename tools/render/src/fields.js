// Field configuration as Grafana applies it at load: plugin defaults, overrides, transformations.
import {
  applyFieldOverrides,
  cacheFieldDisplayNames,
  FieldConfigOptionsRegistry,
  FieldType,
  standardTransformers,
  standardTransformersRegistry,
  transformDataFrame,
} from '@grafana/data';
import { lastValueFrom } from 'rxjs';

import { theme, timeZone } from './theme.js';
import { interpolate } from './variables.js';

const STANDARD = [
  ...['unit', 'min', 'max', 'decimals', 'displayName', 'noValue', 'thresholds', 'mappings'],
  ...['links', 'color', 'filterable', 'fieldMinMax', 'description', 'path'],
];
// What a panel plugin colours by when the JSON says nothing; the others go by thresholds.
const COLOR = { timeseries: 'palette-classic', 'state-timeline': 'continuous-GrYlRd' };
const THRESHOLDS = {
  mode: 'absolute',
  steps: [
    { value: null, color: 'green' },
    { value: 80, color: 'red' },
  ],
};

export function registerTransformations() {
  const known = new Map(
    Object.values(standardTransformers)
      .filter((one) => one?.id)
      .map((one) => [one.id, one]),
  );
  standardTransformersRegistry.setInit(() =>
    [...known.values()].map((one) => ({
      id: one.id,
      name: one.name,
      aliasIds: one.aliasIds,
      transformation: () => Promise.resolve(one),
      editor: () => null,
    })),
  );
}

/** The panel's field configuration with its plugin's defaults. */
export function fieldConfigOf(panel) {
  const { defaults = {}, overrides = [] } = panel.fieldConfig ?? {};
  const color = { mode: COLOR[panel.type] ?? 'thresholds' };
  return { overrides, defaults: { color, thresholds: THRESHOLDS, ...defaults } };
}

export async function transformed(panel, frames) {
  const wanted = (panel.transformations ?? []).filter((one) => !one.disabled);
  return wanted.length ? lastValueFrom(transformDataFrame(wanted, frames)) : frames;
}

export function configured(panel, frames, variables, scoped) {
  const result = applyFieldOverrides({
    data: frames,
    fieldConfig: fieldConfigOf(panel),
    fieldConfigRegistry: registryOf(panel),
    replaceVariables: (text) => interpolate(text, variables, {}, scoped),
    theme,
    timeZone,
  });
  cacheFieldDisplayNames(result);
  return result;
}

/** Every property that this panel sets: Grafana's core knows them from the panel's plugin. */
function registryOf(panel) {
  const { defaults, overrides } = fieldConfigOf(panel);
  const custom = new Set([
    ...Object.keys(defaults.custom ?? {}),
    ...overrides
      .flatMap((override) => override.properties)
      .filter(({ id }) => id.startsWith('custom.'))
      .map(({ id }) => id.slice('custom.'.length)),
  ]);
  // Drawing options are none of the time axis'; a table's column of times has some.
  const drawn = (field) => panel.type === 'table' || field.type !== FieldType.time;
  const item = (id, path, isCustom) => ({
    id,
    path,
    name: id,
    isCustom,
    process: (value) => value,
    shouldApply: isCustom ? drawn : () => true,
    getItemsCount: () => 1,
    editor: () => null,
    override: () => null,
    settings: {},
  });
  return new FieldConfigOptionsRegistry(() => [
    ...STANDARD.map((name) => item(name, name, false)),
    ...[...custom].map((name) => item(`custom.${name}`, name, true)),
  ]);
}
