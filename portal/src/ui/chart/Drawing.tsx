import { useEffect, useRef } from "react";
import type { Figure } from "../../api/schema";
import plotly from "./plotly";
import styles from "./Chart.module.css";
import { visibleIn } from "../visible";

const CONFIG = {
  displaylogo: false,
  responsive: false,
  modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
  // Nothing may be sent anywhere; pictures are made in the browser.
  showSendToCloud: false,
  showLink: false,
  plotlyServerURL: "",
  locale: "en",
};

/** Plotly's drawing of a figure; it follows the width of its place. */
export default function Drawing({ figure, height }: { readonly figure: Figure; readonly height: number }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const box = place.current;
    if (!box) return undefined;
    const { data, layout } = figure.plotly as { data: unknown; layout: Record<string, unknown> };
    // Plotly writes into what it is given: a copy, the answer is shared.
    // The caption has the title, so the figure needs no room for it.
    const margin = { ...(layout["margin"] as object | undefined), t: 34 };
    const own = visibleIn(structuredClone({ data, layout: { ...layout, autosize: true, height, margin, width: undefined, title: undefined } }));
    void plotly.react(box, own.data, own.layout, CONFIG);
    return undefined;
  }, [figure, height]);
  useEffect(() => {
    const box = place.current;
    if (!box) return undefined;
    let width = box.clientWidth;
    const observer = new ResizeObserver(() => {
      if (box.clientWidth === width || box.clientWidth === 0) return;
      width = box.clientWidth;
      void plotly.Plots.resize(box);
    });
    observer.observe(box);
    return () => {
      observer.disconnect();
      plotly.purge(box);
    };
  }, []);
  return <div ref={place} className={styles.drawing} style={{ height }} role="group" aria-label={figure.described || figure.title} />;
}
