import { useNavigate, useParams, useRouterState } from "@tanstack/react-router";
import { useCallback, useMemo } from "react";
import type { SearchOf } from "./search";
import { type PagePlace, SEARCHES } from "./searches";

type Ids<P extends string> = P extends `${string}$${infer Name}/${infer Rest}`
  ? { readonly [K in Name | keyof Ids<`/${Rest}`>]: string }
  : P extends `${string}$${infer Name}`
    ? { readonly [K in Name]: string }
    : Record<never, string>;

type Values<P extends PagePlace> = SearchOf<(typeof SEARCHES)[P]>;

export interface Place<P extends PagePlace> {
  /** Ids in the path. */
  readonly params: Ids<P>;
  /** Search parameters, all of them. */
  readonly search: Values<P>;
  /** Changes some of the search parameters; with `replace` Back does not stop here. */
  readonly update: (change: Partial<Values<P>>, options?: { readonly replace?: boolean }) => void;
}

/** Where we are: a page's ids and search parameters, and how to change them. */
export function usePlace<P extends PagePlace>(page: P): Place<P> {
  const params = useParams({ strict: false }) as unknown as Ids<P>;
  // As text: it changes only where the search does, and pages share one route type here.
  const written = useRouterState({ select: (state) => JSON.stringify(state.location.search) });
  const navigate = useNavigate();
  const definition = SEARCHES[page] as unknown as { values(raw: object): Values<P>; validate(raw: object): object };
  const search = useMemo(() => definition.values(JSON.parse(written) as object), [definition, written]);
  const update = useCallback(
    (change: Partial<Values<P>>, options: { readonly replace?: boolean } = {}) => {
      void navigate({
        to: ".",
        search: ((before: object) => definition.validate({ ...before, ...change })) as never,
        replace: options.replace ?? false,
        resetScroll: false,
      });
    },
    [navigate, definition],
  );
  return { params, search, update };
}
