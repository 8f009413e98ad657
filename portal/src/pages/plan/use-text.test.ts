import { act, renderHook } from "@testing-library/react";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { draftOf, keepDraft } from "./draft";
import { useText } from "./use-text";

const SAVED = { text: "name: a\n", etag: '"1"' };

beforeEach(() => {
  vi.useFakeTimers();
  keepDraft("doc", null);
});

describe("an edited text", () => {
  it("is kept as a draft while it differs from what is saved, and forgotten once it is saved", () => {
    const { result } = renderHook(() => useText("doc", SAVED));
    act(() => result.current.type("name: b\n"));
    act(() => void vi.advanceTimersByTime(1000));
    expect(result.current.dirty).toBe(true);
    expect(draftOf("doc")?.text).toBe("name: b\n");
    act(() => result.current.settle({ text: "name: b\n", etag: '"2"' }));
    act(() => void vi.advanceTimersByTime(1000));
    expect(result.current.dirty).toBe(false);
    expect(draftOf("doc")).toBeNull();
  });

  it("offers the draft of an earlier visit, and does not overwrite it before somebody decides", () => {
    keepDraft("doc", { text: "name: lost\n", etag: '"1"', time: 1 });
    const { result } = renderHook(() => useText("doc", SAVED));
    act(() => void vi.advanceTimersByTime(1000));
    expect(result.current.draft?.text).toBe("name: lost\n");
    expect(draftOf("doc")?.text).toBe("name: lost\n");
    act(() => result.current.takeDraft());
    expect(result.current.text).toBe("name: lost\n");
    expect(result.current.revision).toBe(1);
  });

  it("follows what is saved elsewhere only where nothing of ours would be lost", () => {
    const { result, rerender } = renderHook(({ loaded }) => useText("doc", loaded), { initialProps: { loaded: SAVED } });
    rerender({ loaded: { text: "name: theirs\n", etag: '"2"' } });
    expect(result.current.text).toBe("name: theirs\n");
    act(() => result.current.type("name: mine\n"));
    rerender({ loaded: { text: "name: again\n", etag: '"3"' } });
    expect(result.current.text).toBe("name: mine\n");
    expect(result.current.saved.etag).toBe('"2"');
  });

  it("does not go back to the old text between saving and hearing of it", () => {
    const { result, rerender } = renderHook(({ loaded }) => useText("doc", loaded), { initialProps: { loaded: SAVED } });
    act(() => result.current.type("name: mine\n"));
    act(() => result.current.settle({ text: "name: mine\n", etag: '"2"' }));
    rerender({ loaded: { ...SAVED } });
    expect(result.current.text).toBe("name: mine\n");
    rerender({ loaded: { text: "name: mine\n", etag: '"2"' } });
    expect(result.current.revision).toBe(0);
  });
});
