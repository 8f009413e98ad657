import { QueryClientProvider, type QueryClient } from "@tanstack/react-query";
import { RouterProvider, type RouterHistory } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { makeClient } from "./client";
import { stream } from "./live";
import { followNews } from "./news";
import { makeRouter } from "./router";
import { onBack, sessionState, useSession } from "./session";
import { SignIn } from "./SignIn";

/** The whole client. */
export function App({ history }: { readonly history?: RouterHistory }) {
  const [client] = useState(makeClient);
  const [router] = useState(() => makeRouter(history));
  const { phase, why } = useSession();
  useLiveAnswers(client, phase === "in");
  if (phase === "opening") return null;
  if (phase === "broken") return <SignIn why={why} closed />;
  if (phase === "out") return <SignIn why={why} />;
  return (
    <QueryClientProvider client={client}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  );
}

function useLiveAnswers(client: QueryClient, on: boolean): void {
  useEffect(() => {
    const { session } = sessionState();
    if (!on || session === null) return undefined;
    const leave = stream.onNews(followNews(client));
    const again = onBack(() => {
      stream.wake();
      void client.invalidateQueries();
    });
    stream.start(session.news);
    return () => {
      leave();
      again();
      stream.stop();
    };
  }, [client, on]);
}
