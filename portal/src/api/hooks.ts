import {
  keepPreviousData,
  type QueryKey,
  useInfiniteQuery,
  useMutation,
  useQueries,
  useQuery,
  useQueryClient,
  type UseQueryResult,
} from "@tanstack/react-query";
import { useMemo } from "react";
import type { FaultError} from "./client";
import { ask, fetchJson, address, send } from "./client";
import type { Answer, AnyParams, Body, ChangeVerb, GetPath, Params, PathOf } from "./types";

/** How a request is named in the cache; live news finds what is affected by the ids in it. */
export function keyOf(path: string, params: AnyParams | null): QueryKey {
  return ["api", path, params?.path ?? {}, params?.query ?? {}];
}

/** A request for `queryClient.prefetchQuery` and the like. */
export function queryOf<P extends GetPath>(path: P, params: Params<P>) {
  return {
    queryKey: keyOf(path, params),
    queryFn: ({ signal }: { signal: AbortSignal }) => ask(path, params, signal),
  };
}

interface ApiOptions {
  /** Milliseconds between questions; news alone decides where it is absent. */
  readonly every?: number | false;
  /** Shows the last answer while another is asked for. */
  readonly keep?: boolean;
  /** How long an answer is believed without asking again, milliseconds. */
  readonly fresh?: number;
}

/** An answer of the API, fetched again when news says that it changed.
 *
 * @param params - null: there is nothing to ask yet
 */
export function useApi<P extends GetPath>(path: P, params: Params<P> | null, options: ApiOptions = {}): UseQueryResult<Answer<P>, FaultError> {
  return useQuery<Answer<P>, FaultError>({
    queryKey: keyOf(path, params),
    queryFn: ({ signal }) => ask(path, params as Params<P>, signal),
    enabled: params !== null,
    refetchInterval: options.every ?? false,
    ...(options.fresh === undefined ? {} : { staleTime: options.fresh }),
    ...(options.keep ? { placeholderData: keepPreviousData } : {}),
  });
}

/** The same question about several things; an answer is undefined until it is there, and where there is none. */
export function useApis<P extends GetPath>(path: P, asked: readonly Params<P>[], options: { readonly fresh: number }): { readonly answers: readonly (Answer<P> | undefined)[]; readonly busy: boolean } {
  const { answers, busy } = useQueries({
    queries: asked.map((params) => ({ ...queryOf(path, params), staleTime: options.fresh })),
    combine: gathered,
  });
  return { answers: answers as readonly (Answer<P> | undefined)[], busy };
}

function gathered(found: readonly { readonly data: unknown; readonly isFetching: boolean }[]) {
  return { answers: found.map(({ data }) => data), busy: found.some(({ isFetching }) => isFetching) };
}

/** Rows of which a part is known; see `Table`. */
export interface Rows<Row> {
  /** How many there are room for: those known, and those that can be fetched next. */
  readonly count: number;
  /** Whether there may be more than `total`. */
  readonly floor?: boolean;
  /** How many there are in all. */
  readonly total?: number;
  /** A row; undefined: not here yet. */
  at(index: number): Row | undefined;
  /** These are in view. */
  need?(first: number, last: number): void;
}

interface PageLike {
  readonly items: readonly unknown[];
  readonly next?: string | null;
  readonly total?: number;
  readonly counted_to?: number;
}

/** Paths whose answer is a page. */
export type PagePath = { [P in GetPath]: Answer<P> extends PageLike ? P : never }[GetPath];
type RowOf<P extends PagePath> = Answer<P> extends { readonly items: readonly (infer Row)[] } ? Row : never;

export interface Pages<Row, First> {
  readonly rows: Rows<Row>;
  /** In all, as far as counted. */
  readonly total: number | undefined;
  /** Whether `total` stands for `so many or more`. */
  readonly floor: boolean;
  readonly more: boolean;
  readonly loading: boolean;
  /** Whether what is shown answers an earlier question. */
  readonly old: boolean;
  readonly fault: FaultError | null;
  /** The first page whole. */
  readonly first: First | undefined;
  readonly updatedAt: number;
  readonly next: () => void;
  readonly again: () => void;
}

/** A long list, by keyset pages that are fetched as they come into view. */
export function usePages<P extends PagePath>(path: P, params: Params<P> | null, options: { readonly limit?: number; readonly fresh?: number } = {}): Pages<RowOf<P>, Answer<P>> {
  const limit = options.limit ?? 100;
  const found = useInfiniteQuery({
    queryKey: [...keyOf(path, params), "pages", limit],
    queryFn: ({ pageParam, signal }) => {
      const query = { ...params?.query, after: pageParam, limit };
      return fetchJson(address(path, { ...params, query }), signal) as Promise<PageLike>;
    },
    initialPageParam: null as string | null,
    getNextPageParam: (page: PageLike) => page.next ?? null,
    enabled: params !== null,
    placeholderData: keepPreviousData,
    ...(options.fresh === undefined ? {} : { staleTime: options.fresh }),
  });
  const { data, fetchNextPage, hasNextPage, isFetchingNextPage, refetch } = found;
  const flat = useMemo(() => data?.pages.flatMap((page) => page.items as readonly RowOf<P>[]) ?? [], [data]);
  const first = data?.pages[0];
  const total = first?.total;
  const floor = first?.counted_to !== undefined && total !== undefined && total >= first.counted_to;
  const next = () => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  };
  const ahead = hasNextPage ? Math.max(1, Math.min(limit, (total ?? Infinity) - flat.length)) : 0;
  const rows: Rows<RowOf<P>> = {
    count: flat.length + ahead,
    floor,
    ...(total === undefined ? {} : { total: Math.max(total, flat.length) }),
    at: (index) => flat[index],
    need: (_, last) => {
      if (last >= flat.length - limit / 2) next();
    },
  };
  return {
    rows,
    total,
    floor,
    more: hasNextPage,
    loading: found.isPending && params !== null,
    old: found.isPlaceholderData,
    fault: (found.error as FaultError | null) ?? null,
    first: first as Answer<P> | undefined,
    updatedAt: found.dataUpdatedAt,
    next,
    again: () => void refetch(),
  };
}

type Change<P extends PathOf<V>, V extends ChangeVerb> = Params<P, V> & {
  readonly body?: Body<P, V>;
  readonly headers?: Readonly<Record<string, string>>;
};

/** A change; what is shown of the same path is fetched again after it. */
export function useMutate<V extends ChangeVerb, P extends PathOf<V>>(verb: V, path: P) {
  const client = useQueryClient();
  const base = path.split("/").slice(0, 2).join("/");
  const found = useMutation<Answer<P, V>, FaultError, Change<P, V>>({
    mutationFn: ({ body, headers, ...params }) => send(verb, path, params as unknown as Params<P, V>, body as Body<P, V>, headers),
    onSuccess: () => client.invalidateQueries({ predicate: ({ queryKey }) => String(queryKey[1]).startsWith(base) }),
  });
  return { run: found.mutateAsync, pending: found.isPending, fault: found.error, reset: found.reset };
}
