import { QueryClient } from "@tanstack/react-query";
import { FaultError } from "../api/client";

/** Answers that are known. News says what is old; where no news comes, an answer is believed for half a minute. */
export function makeClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: 30_000,
        gcTime: 10 * 60_000,
        // Our own watch knows whether the portal can be reached; the browser's word is about the internet.
        networkMode: "always",
        refetchOnReconnect: false,
        // What is being computed is asked for until it is there; anything else that is busy, twice more.
        retry: (count, error) => error instanceof FaultError && (error.underWay || (error.status === 503 && count < 2)),
        retryDelay: (count, error) => (error instanceof FaultError && error.underWay ? 500 : 400 * 2 ** count),
      },
      mutations: { networkMode: "always", retry: false },
    },
  });
}
