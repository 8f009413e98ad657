import type uPlot from "uplot";

/** Events as lines across a strip, with their first words where these are wanted. */
export function marksPlugin(marks: readonly (readonly [number, string])[], colour: string, worded: boolean): uPlot.Plugin {
  return {
    hooks: {
      draw: (plot) => {
        const { ctx } = plot;
        const { left, top, width, height } = plot.bbox;
        const ratio = devicePixelRatio;
        ctx.save();
        ctx.strokeStyle = colour;
        ctx.fillStyle = colour;
        ctx.lineWidth = ratio;
        ctx.font = `${10 * ratio}px sans-serif`;
        ctx.textAlign = "left";
        ctx.setLineDash([3 * ratio, 3 * ratio]);
        let free = -Infinity;
        for (const [time, what] of marks) {
          const x = plot.valToPos(time, "x", true);
          if (x < left || x > left + width) continue;
          ctx.beginPath();
          ctx.moveTo(x, top);
          ctx.lineTo(x, top + height);
          ctx.stroke();
          const words = what.length > 24 ? `${what.slice(0, 23)}…` : what;
          const room = ctx.measureText(words).width;
          // Words that would lie on others are left out; the timeline has them all.
          if (!worded || x < free || x + room > left + width) continue;
          ctx.fillText(words, x + 3 * ratio, top + 10 * ratio);
          free = x + room + 8 * ratio;
        }
        ctx.restore();
      },
    },
  };
}
