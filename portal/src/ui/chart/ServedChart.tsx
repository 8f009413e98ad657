import { useApi } from "../../api/hooks";
import type { Figure } from "../../api/schema";
import type { Answer, GetPath, Params } from "../../api/types";
import { FaultBox } from "../FaultBox";
import { useTheme } from "../look";
import { Skeleton } from "../Skeleton";
import { Chart } from "./Chart";

type FigurePath = { [P in GetPath]: Answer<P> extends { readonly plotly: unknown } ? P : never }[GetPath];

interface Props<P extends FigurePath> {
  readonly path: P;
  readonly params: Params<P>;
  readonly height?: number;
}

/** A figure by its route; the server draws it for the theme that is seen. */
export function ServedChart<P extends FigurePath>({ path, params, height }: Props<P>) {
  const theme = useTheme();
  const themed = { ...params, query: { ...params.query, theme } } as unknown as Params<P>;
  const { data, error, isPending, refetch } = useApi(path, themed, { keep: true });
  if (error) return <FaultBox fault={error} retry={() => void refetch()} />;
  if (isPending) return <Skeleton lines={6} label="Loading the chart" />;
  // The path says that it is one; what it says is too far away for the compiler.
  const figure: unknown = data;
  return <Chart figure={figure as Figure} {...(height === undefined ? {} : { height })} />;
}
