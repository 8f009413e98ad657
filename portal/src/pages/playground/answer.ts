/** An answer as it streams: events of OpenAI's chat completions. */

export interface AnswerSoFar {
  readonly text: string;
  readonly reasoning: string;
  /** Milliseconds until the first text; null: there is none yet. */
  readonly first: number | null;
  /** Milliseconds until now. */
  readonly took: number;
  readonly promptTokens: number | null;
  readonly tokens: number | null;
  /** Why it ended: `stop`, `length`; empty: it goes on. */
  readonly reason: string;
  /** What broke; empty: nothing. */
  readonly error: string;
}

export const NOTHING: AnswerSoFar = { text: "", reasoning: "", first: null, took: 0, promptTokens: null, tokens: null, reason: "", error: "" };

interface Chunk {
  readonly choices?: readonly { readonly delta?: { readonly content?: string | null; readonly reasoning?: string | null; readonly reasoning_content?: string | null }; readonly finish_reason?: string | null }[];
  readonly usage?: { readonly prompt_tokens?: number; readonly completion_tokens?: number } | null;
  readonly error?: { readonly message?: string };
}

/** The answer with one more event.
 *
 * @param data - text after `data:`
 * @param took - milliseconds since the question
 */
export function grown(before: AnswerSoFar, data: string, took: number): AnswerSoFar {
  if (data === "[DONE]") return { ...before, took, reason: before.reason || "stop" };
  let chunk: Chunk;
  try {
    chunk = JSON.parse(data) as Chunk;
  } catch {
    return before;
  }
  if (chunk.error) return { ...before, took, error: chunk.error.message ?? "the engine reports an error" };
  const [choice] = chunk.choices ?? [];
  const more = choice?.delta?.content ?? "";
  const thought = choice?.delta?.reasoning ?? choice?.delta?.reasoning_content ?? "";
  return {
    ...before,
    text: before.text + more,
    reasoning: before.reasoning + thought,
    first: before.first ?? (more || thought ? took : null),
    took,
    promptTokens: chunk.usage?.prompt_tokens ?? before.promptTokens,
    tokens: chunk.usage?.completion_tokens ?? before.tokens,
    reason: choice?.finish_reason ?? before.reason,
  };
}

/** Reads events, and tells the answer after each piece that comes.
 *
 * @param start - when the question was sent, by `performance.now`
 */
export async function follow(body: ReadableStream<Uint8Array>, start: number, tell: (answer: AnswerSoFar) => void): Promise<AnswerSoFar> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let [answer, rest] = [NOTHING, ""];
  for (;;) {
    const { done, value } = await reader.read();
    rest += decoder.decode(value, { stream: !done });
    const lines = rest.split(/\r?\n/);
    rest = done ? "" : (lines.pop() ?? "");
    for (const line of lines) {
      if (line.startsWith("data:")) answer = grown(answer, line.slice(5).trim(), performance.now() - start);
    }
    tell(answer);
    if (done) return answer;
  }
}
