// Where panels go: Grafana's grid of 24 columns, repeated panels, collapsed rows.
export const CELL = 30;
export const GAP = 8;

/** [{panel, scoped, x, y, w, h}] in pixels; `width` is that of the grid. */
export function place(panels, variables, width, { expandRows }) {
  const column = (width + GAP) / 24;
  return unfolded(panels, expandRows).flatMap(({ panel, shift }) => {
    const { x, y, w, h } = panel.gridPos;
    return copies(panel, variables).map(({ scoped, place: at, columns }) => ({
      panel,
      scoped,
      x: (at === null ? x : at.x) * column,
      y: (y + shift + (at === null ? 0 : at.line * h)) * (CELL + GAP),
      w: (columns ?? w) * column - GAP,
      h: h * (CELL + GAP) - GAP,
    }));
  });
}

/** Panels of collapsed rows, when wanted, push what follows down. */
function unfolded(panels, expandRows) {
  let shift = 0;
  return panels.flatMap((panel) => {
    const here = { panel, shift };
    if (panel.type !== 'row' || !panel.collapsed || !expandRows || !panel.panels?.length) return [here];
    const top = Math.min(...panel.panels.map((inner) => inner.gridPos.y));
    const bottom = Math.max(...panel.panels.map((inner) => inner.gridPos.y + inner.gridPos.h));
    const inner = shift + panel.gridPos.y + 1 - top;
    shift += bottom - top;
    const open = { panel: { ...panel, collapsed: false }, shift: here.shift };
    return [open, ...panel.panels.map((one) => ({ panel: one, shift: inner }))];
  });
}

function copies(panel, variables) {
  const variable = panel.repeat ? variables[panel.repeat] : undefined;
  if (!variable) return [{ scoped: {}, place: null }];
  const values = [variable.value ?? []].flat();
  const columns = Math.max(Math.floor(24 / values.length), Math.floor(24 / (panel.maxPerRow || 4)));
  return values.map((value, index) => ({
    scoped: { [panel.repeat]: value },
    place: { x: (index * columns) % 24, line: Math.floor((index * columns) / 24) },
    columns,
  }));
}
