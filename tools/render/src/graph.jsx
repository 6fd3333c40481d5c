// Grafana's time series, with its plugin's drawing defaults and spans of annotations.
import { FieldType, applyNullInsertThreshold } from '@grafana/data';
import { TimeSeries } from '@grafana/ui';
import { useLayoutEffect } from 'react';

import { theme, timeZone } from './theme.js';

const DRAWING = {
  drawStyle: 'line',
  lineInterpolation: 'linear',
  lineWidth: 1,
  fillOpacity: 0,
  gradientMode: 'none',
  showPoints: 'auto',
  pointSize: 5,
  barAlignment: 0,
  spanNulls: false,
  axisPlacement: 'auto',
  scaleDistribution: { type: 'linear' },
};
const LEGEND = { showLegend: true, displayMode: 'list', placement: 'bottom', calcs: [] };

export function Graph({ frames, panel, range, width, height, spans }) {
  const options = panel.options ?? {};
  return (
    <TimeSeries
      frames={frames.map((frame) => withHoles(drawable(frame), range))}
      timeRange={range}
      timeZone={timeZone}
      width={width}
      height={height}
      legend={{ ...LEGEND, ...options.legend }}
      options={options}
      structureRev={1}
    >
      {(config) => <Spans config={config} spans={spans} />}
    </TimeSeries>
  );
}

// As Grafana's panel does: where steps are missing, no line joins what lies on both sides.
function withHoles(frame, { from, to }) {
  const [refFieldPseudoMin, refFieldPseudoMax] = [from.valueOf(), to.valueOf()];
  return applyNullInsertThreshold({ frame, refFieldPseudoMin, refFieldPseudoMax });
}

function drawable(frame) {
  const fields = frame.fields.map((field) => {
    if (field.type === FieldType.time) return field;
    const config = { ...field.config, custom: { ...DRAWING, ...field.config.custom } };
    // As Grafana's panel does: a NaN is a hole, and would leave the axis without a range.
    return { ...field, config, values: field.values.map((v) => (Number.isFinite(v) ? v : null)) };
  });
  return { ...frame, fields };
}

function Spans({ config, spans }) {
  useLayoutEffect(() => {
    config.addHook('draw', ({ ctx, bbox, valToPos }) => {
      ctx.save();
      for (const span of spans) {
        const left = Math.max(valToPos(span.from, 'x', true), bbox.left);
        const right = Math.min(valToPos(span.to, 'x', true), bbox.left + bbox.width);
        if (right < bbox.left) continue;
        ctx.fillStyle = theme.visualization.getColorByName(span.color ?? 'red');
        ctx.globalAlpha = 0.08;
        ctx.fillRect(left, bbox.top, Math.max(1, right - left), bbox.height);
        ctx.globalAlpha = 1;
        ctx.fillRect(left, bbox.top + bbox.height - 3, Math.max(2, right - left), 3);
      }
      ctx.restore();
    });
  }, [config, spans]);
  return null;
}
