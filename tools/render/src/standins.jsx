// Panels that Grafana keeps in its server: our own drawings of gauge, heatmap and state timeline.
import {
  dateTimeFormat,
  FieldType,
  formattedValueToString,
  getDisplayProcessor,
  getFieldDisplayName,
} from '@grafana/data';
import * as chromatic from 'd3-scale-chromatic';
import { useLayoutEffect, useRef } from 'react';

import { theme, timeZone } from './theme.js';

const INK = theme.colors.text.primary;

function Canvas({ width, height, draw }) {
  const reference = useRef(null);
  useLayoutEffect(() => {
    const ratio = window.devicePixelRatio || 1;
    const canvas = Object.assign(reference.current, { width: width * ratio, height: height * ratio });
    const pen = canvas.getContext('2d');
    pen.scale(ratio, ratio);
    pen.font = `12px ${theme.typography.fontFamily}`;
    draw(pen);
  });
  return <canvas ref={reference} style={{ width, height }} />;
}

function write(pen, text, x, y, align, color = INK) {
  Object.assign(pen, { fillStyle: color, textAlign: align, textBaseline: 'middle' });
  pen.fillText(text, x, y);
}

/** Pixels of a moment between `left` and `right`. */
function timeScale(range, left, right) {
  const [from, to] = [range.from.valueOf(), range.to.valueOf()];
  return (time) => left + ((right - left) * (time - from)) / (to - from);
}

function timeAxis(pen, range, left, right, y) {
  const [from, to] = [range.from.valueOf(), range.to.valueOf()];
  const parts = Math.max(2, Math.floor((right - left) / 90));
  const format = to - from < 600_000 ? 'HH:mm:ss' : 'HH:mm';
  for (let part = 1; part < parts; part++) {
    const text = dateTimeFormat(from + ((to - from) * part) / parts, { format, timeZone });
    write(pen, text, left + ((right - left) * part) / parts, y, 'center');
  }
}

export function Heatmap({ frames, panel, range, width, height }) {
  const options = panel.options ?? {};
  const { scheme = 'Oranges', steps = 64, reverse, min = 0, max } = options.color ?? {};
  const [{ values: times, config }, ...rows] = frames[0].fields;
  const unit = options.yAxis?.unit ?? panel.fieldConfig?.defaults?.unit;
  const display = getDisplayProcessor({ field: { type: FieldType.number, config: { unit } }, theme });
  const color = chromatic[`interpolate${scheme}`] ?? chromatic.interpolateOranges;
  const most = max ?? Math.max(...rows.flatMap((row) => row.values));
  const shade = (value) => {
    const share = Math.round(((value - min) / (most - min || 1)) * (steps - 1)) / (steps - 1);
    return color(theme.isDark !== Boolean(reverse) ? 1 - share : share);
  };
  const [left, right, bottom] = [72, width - 8, height - 24];
  const line = bottom / rows.length;
  return (
    <Canvas
      width={width}
      height={height}
      draw={(pen) => {
        const x = timeScale(range, left, right);
        rows.forEach((row, index) => {
          const y = bottom - (index + 1) * line;
          row.values.forEach((value, at) => {
            const from = Math.max(left, x(times[at] - config.interval));
            if (value <= (options.filterValues?.le ?? 1e-9) || x(times[at]) <= left) return;
            pen.fillStyle = shade(value);
            pen.fillRect(from, y, Math.max(1, x(times[at]) - from - 1), Math.max(1, line - 1));
          });
          const limit = row.name === '+Inf' ? '∞' : formattedValueToString(display(Number(row.name)));
          if (index % Math.ceil(14 / line) === 0) write(pen, limit, left - 6, Math.max(7, y), 'right');
        });
        timeAxis(pen, range, left, right, height - 10);
      }}
    />
  );
}

export function StateTimeline({ frames, panel, range, width, height }) {
  const rows = frames.flatMap((frame) =>
    frame.fields
      .filter((field) => field.type !== FieldType.time)
      .map((field) => ({
        name: getFieldDisplayName(field, frame, frames),
        display: field.display,
        values: field.values,
        times: frame.fields[0].values,
        step: frame.fields[0].config.interval ?? 0,
      })),
  );
  const { rowHeight = 0.9, showValue = 'auto', legend } = panel.options ?? {};
  const legendShown = legend?.showLegend !== false;
  const bottom = height - (legendShown ? 42 : 22);
  const line = bottom / rows.length;
  return (
    <Canvas
      width={width}
      height={height}
      draw={(pen) => {
        const longest = Math.max(...rows.map((row) => pen.measureText(row.name).width));
        const [left, right] = [Math.min(width * 0.45, longest + 14), width - 8];
        const x = timeScale(range, left, right);
        const states = new Map();
        rows.forEach((row, index) => {
          const y = (index + 0.5) * line;
          for (const state of statesOf(row)) {
            const [from, to] = [Math.max(left, x(state.from)), Math.min(right, x(state.to))];
            states.set(state.text, state.color);
            pen.fillStyle = state.color;
            pen.fillRect(from, y - (line * rowHeight) / 2, Math.max(1, to - from), line * rowHeight);
            if (showValue !== 'never' && pen.measureText(state.text).width < to - from - 8) {
              write(pen, state.text, from + 5, y, 'left', theme.colors.getContrastText(state.color));
            }
          }
          write(pen, row.name, left - 6, y, 'right');
        });
        timeAxis(pen, range, left, right, bottom + 12);
        let at = 8;
        for (const [text, color] of legendShown ? states : []) {
          pen.fillStyle = color;
          pen.fillRect(at, height - 13, 14, 4);
          write(pen, text, at + 19, height - 11, 'left');
          at += pen.measureText(text).width + 36;
        }
      }}
    />
  );
}

/** Runs of equal display; a hole in the data ends one. */
function statesOf({ display, values, times, step }) {
  const runs = [];
  values.forEach((value, index) => {
    if (value === null) return;
    const { color, ...shown } = display(value);
    const text = formattedValueToString(shown);
    const last = runs.at(-1);
    const to = times[index] + step;
    if (last && last.text === text && times[index] <= last.to + step / 2) last.to = to;
    else runs.push({ text, color, from: times[index], to });
  });
  return runs;
}

export function Gauge({ value, width, height }) {
  const { min = 0, max = 100, thresholds } = value.field;
  const share = (number) => Math.max(0, Math.min(1, (number - min) / (max - min || 1)));
  const radius = Math.max(10, Math.min(width / 2, height * 0.62) - 8);
  const [x, y] = [width / 2, height * 0.62];
  const arc = (from, to, r) => {
    const point = (part) => {
      const angle = Math.PI * (0.9 + 1.2 * part);
      return `${x + r * Math.cos(angle)},${y + r * Math.sin(angle)}`;
    };
    return `M${point(from)}A${r},${r} 0 ${to - from > 1 / 1.2 ? 1 : 0} 1 ${point(to)}`;
  };
  const stroke = (from, to, r, color, thickness) => (
    <path key={`${from} ${r}`} d={arc(from, to, r)} stroke={color} strokeWidth={thickness} fill="none" />
  );
  const steps = thresholds?.steps ?? [];
  return (
    <svg width={width} height={height}>
      {steps.map((step, index) =>
        stroke(
          share(step.value ?? min),
          share(steps[index + 1]?.value ?? max),
          radius,
          theme.visualization.getColorByName(step.color),
          3,
        ),
      )}
      {stroke(0, 1, radius - 11, theme.colors.background.secondary, 15)}
      {stroke(0, Math.max(0.001, share(value.display.numeric)), radius - 11.01, value.display.color, 15)}
      <text x={x} y={y} textAnchor="middle" fill={value.display.color} fontSize={Math.min(26, radius / 2)}>
        {formattedValueToString(value.display)}
      </text>
    </svg>
  );
}
