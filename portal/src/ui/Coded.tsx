/** A sentence of ours, in which commands stand between backticks; what is in it of others stays text. */
export function Coded({ text }: { readonly text: string }) {
  const parts = text.split("`");
  // Without its partner, one is a sign like any other.
  if (parts.length % 2 === 0) return text;
  return parts.map((part, place) => (place % 2 === 1 ? <code key={place}>{part}</code> : part));
}
