import { useApi } from "../../api";
import { Pending } from "../../app/Pending";
import { usePlace } from "../../app/place";
import { kindOf, ONE } from "./kinds";
import { Workbench } from "./Workbench";

/** A plan or definition, and all that can be done with it; `new` is one without a file yet. */
export default function PlanPage() {
  const { params, search } = usePlace("/plans/$definition");
  if (params.definition === "new") return <New key={`${search.kind} ${search.starter} ${search.from}`} />;
  return <Opened key={params.definition} id={params.definition} />;
}

function Opened({ id }: { readonly id: string }) {
  const found = useApi("/definitions/{id}", { path: { id } });
  if (!found.data) return <Pending name="File" fault={found.error} retry={() => void found.refetch()} />;
  return <Workbench row={found.data.row} loaded={found.data} kind={found.data.row.kind} />;
}

function New() {
  const { search } = usePlace("/plans/$definition");
  const kind = kindOf(search.kind);
  const starters = useApi("/definitions/starters", search.from ? null : { query: { kind } });
  const copied = useApi("/definitions/{id}", search.from ? { path: { id: search.from } } : null);
  const asked = search.from ? copied : starters;
  if (!asked.data) return <Pending name={`New ${ONE[kind]}`} fault={asked.error} retry={() => void asked.refetch()} />;
  const starter = starters.data?.find((one) => one.name === search.starter) ?? starters.data?.[0];
  const text = copied.data?.text ?? starter?.text ?? "";
  return <Workbench row={null} loaded={{ text, etag: "" }} kind={copied.data?.row.kind ?? kind} />;
}
