import { useApi } from "../../api";
import { Button, lookOf, Popover, TextInput } from "../../ui";
import { FacetList } from "./FacetList";
import { FILTERS, queryOf, type Search } from "./search";
import styles from "./experiments.module.css";

type Filter = (typeof FILTERS)[number];

const HEADS: Readonly<Record<Filter, string>> = { state: "State", model: "Model", dataset: "Dataset", plan: "Plan" };

interface Props {
  readonly search: Search;
  readonly update: (change: Partial<Search>, options?: { readonly replace?: boolean }) => void;
}

/** What is filtered by: words, and values with how many experiments have them. */
export function Filters({ search, update }: Props) {
  const { data } = useApi("/experiments/facets", { query: queryOf(search) }, { keep: true });
  const facets = new Map((data)?.map((facet) => [facet.field, facet.counts]));
  const chosen = FILTERS.flatMap((filter) => search[filter].map((value) => ({ filter, value })));
  const clear = () => update({ text: "", state: [], model: [], dataset: [], plan: [] });
  return (
    <div className={styles.filters} role="search" aria-label="Filter experiments">
      <TextInput search label="Filter by words" placeholder="Name, model, dataset, owner…" value={search.text} delay={200} width="17rem" onChange={(words) => update({ text: words }, { replace: true })} />
      {FILTERS.map((filter) => (
        <Popover key={filter} label={search[filter].length ? `${HEADS[filter]} · ${search[filter].length}` : HEADS[filter]} icon="chevron">
          {() => <FacetList label={HEADS[filter]} counts={facets.get(filter) ?? []} chosen={search[filter]} word={filter === "state" ? (state) => lookOf(state).word : undefined} onChange={(values) => update({ [filter]: values })} />}
        </Popover>
      ))}
      {chosen.map(({ filter, value }) => (
        <button key={`${filter} ${value}`} type="button" className={styles.chosen} title={`Do not filter by this ${filter}`} onClick={() => update({ [filter]: search[filter].filter((one) => one !== value) })}>
          <span className="visually-hidden">Remove filter: </span>
          {filter === "state" ? lookOf(value).word : value} <span aria-hidden>×</span>
        </button>
      ))}
      {(chosen.length > 0 || search.text) && (
        <Button kind="quiet" small onClick={clear}>
          Clear
        </Button>
      )}
    </div>
  );
}
