import type { ReactNode, RefObject } from "react";

import { isBundle } from "../../api/bundle";
import { Button, Popover, Select, TextInput, Toggle } from "../../ui";
import { conditions, NOTHING, type SampleFilter } from "./filter";
import styles from "./FilterBar.module.css";
import { NumberInput } from "./NumberInput";

interface Props {
  readonly filter: SampleFilter;
  readonly metrics: readonly string[];
  readonly onFilter: (change: Partial<SampleFilter>) => void;
  readonly searchBox: RefObject<HTMLDivElement | null>;
  /** Shown at the end. */
  readonly children: ReactNode;
}

/** Orders that can be chosen. */
function ordersFor(metrics: readonly string[]): { value: string; label: string }[] {
  return [
    { value: "place asc", label: "in order" },
    ...metrics.flatMap((metric) => [
      { value: `${metric} asc`, label: `lowest ${metric} first` },
      { value: `${metric} desc`, label: `highest ${metric} first` },
    ]),
    { value: "latency desc", label: "slowest first" },
    { value: "latency asc", label: "fastest first" },
    { value: "output_tokens desc", label: "longest answer first" },
    { value: "output_tokens asc", label: "shortest answer first" },
  ];
}

/** What the samples are filtered and ordered by; in a bundle whether all of them or the wrong ones are shown. */
export function FilterBar({ filter, metrics, onFilter, searchBox, children }: Props) {
  const orders = ordersFor(metrics);
  const order = `${filter.sort} ${filter.order}`;
  const found = conditions(filter);
  const limits = [filter.low, filter.high, filter.latency_over].filter((one) => one !== null).length;
  return (
    <div className={styles["bars"]}>
      <div className={styles["bar"]} role="search" aria-label="Samples">
        {!isBundle() && (
          <div ref={searchBox} className={styles["text"]}>
            <TextInput label="Search in prompts, answers, references and ids" placeholder="Search text or id  ( / )" value={filter.text} onChange={(text) => onFilter({ text })} delay={250} search width="100%" />
          </div>
        )}
        <Toggle label="Wrong" checked={filter.wrong} onChange={(wrong) => onFilter({ wrong })} />
        {!isBundle() && (
          <>
            <Toggle label="Flagged" checked={filter.flagged} onChange={(flagged) => onFilter({ flagged })} />
            <Popover label={limits > 0 ? `Limits, ${limits}` : "Limits"} small>
              {() => (
                <div className={styles["limits"]}>
                  <NumberInput label="Score from" value={filter.low} onChange={(low) => onFilter({ low })} />
                  <NumberInput label="Score to" value={filter.high} onChange={(high) => onFilter({ high })} />
                  <NumberInput label="Latency over, s" value={filter.latency_over} onChange={(latency_over) => onFilter({ latency_over })} />
                </div>
              )}
            </Popover>
            {metrics.length > 1 && (
              <Select
                label="Metric of scores"
                value={metrics.includes(filter.metric) ? filter.metric : (metrics[0] ?? "")}
                options={metrics.map((value) => ({ value }))}
                onChange={(metric) => onFilter({ metric: metric === metrics[0] ? "" : metric })}
              />
            )}
            <Select
              label="Order"
              value={orders.some((one) => one.value === order) ? order : "place asc"}
              options={orders}
              onChange={(value) => {
                const at = value.lastIndexOf(" ");
                onFilter({ sort: value.slice(0, at), order: value.endsWith("desc") ? "desc" : "asc" });
              }}
            />
          </>
        )}
        <span className={styles["end"]}>{children}</span>
      </div>
      {found.length > 0 && (
        <ul className={styles["conditions"]} aria-label="Filtered by">
          {found.map((one) => (
            <li key={one.text}>
              <button type="button" className={styles["condition"]} onClick={() => onFilter(one.away)}>
                <span className="visually-hidden">remove filter: </span>
                <span className={styles["what"]}>{one.text}</span>
                <span aria-hidden="true">×</span>
              </button>
            </li>
          ))}
          <li>
            <Button small kind="quiet" onClick={() => onFilter(NOTHING)}>
              Clear all
            </Button>
          </li>
        </ul>
      )}
    </div>
  );
}
