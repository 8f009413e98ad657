// What of a page reaches past where it should end, and what of it lies over something else.
(() => {
  // From its top: what is scrolled away lies under the bar above it.
  document.querySelector("main")?.scrollTo(0, 0);
  // An absolutely placed child of something that scrolls but is not positioned enlarges what is around it
  // instead, at last the document.
  const measured = () => {
    const faults = [];
    const document_ = document.scrollingElement;
    if (document_.scrollHeight > innerHeight) faults.push(`the document scrolls: ${document_.scrollHeight} of ${innerHeight} px`);
    if (document_.scrollWidth > innerWidth) faults.push(`the document scrolls sideways: ${document_.scrollWidth} of ${innerWidth} px`);
    const main = document.querySelector("main");
    if (main && main.scrollWidth > main.clientWidth) faults.push(`the page scrolls sideways: ${main.scrollWidth} of ${main.clientWidth} px`);
    const end = main && [...main.children].reduce((low, one) => Math.max(low, one.getBoundingClientRect().bottom), 0) - main.getBoundingClientRect().top + main.scrollTop;
    if (main && main.scrollHeight > Math.max(main.clientHeight, Math.ceil(end) + 1)) faults.push(`the page scrolls past its end: ${main.scrollHeight} of ${end} px`);
    for (const one of document.querySelectorAll("body *")) {
      const { overflowX, overflowY, position } = getComputedStyle(one);
      const scrolls = [overflowX, overflowY].some((how) => ["auto", "scroll"].includes(how));
      if (scrolls && position === "static") faults.push(`what scrolls is not positioned: ${one.tagName} ${one.className}`);
    }
    for (const list of document.querySelectorAll("[role=tablist]")) {
      const [edge, tab] = [list, list.querySelector("[aria-selected=true]")].map((one) => one.getBoundingClientRect());
      if (tab.left < edge.left - 1 || tab.right > edge.right + 1) faults.push("the chosen tab is out of sight");
    }
    for (const cell of document.querySelectorAll("[role=gridcell]")) {
      const edge = cell.getBoundingClientRect();
      for (const one of [cell, ...cell.querySelectorAll("*")].filter((one) => [...one.childNodes].some((node) => node.nodeType === Node.TEXT_NODE))) {
        const cuts = (around) => getComputedStyle(around).overflowX !== "visible" || (around !== cell && cuts(around.parentElement));
        const box = one.getBoundingClientRect();
        if (!cuts(one) && (box.right > edge.right + 1 || box.bottom > edge.bottom + 1)) faults.push(`text leaves its cell: ${one.textContent.slice(0, 40)}`);
      }
    }
    for (const drawing of document.querySelectorAll(".js-plotly-plot")) {
      const words = [...drawing.querySelectorAll(".annotation-text-g")].map((one) => one.getBoundingClientRect());
      const meet = (one, other) => Math.min(one.right, other.right) - Math.max(one.left, other.left) > 2 && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 2;
      if (words.some((one, at) => words.slice(at + 1).some((other) => meet(one, other)))) faults.push("words of a chart overlap");
      const edge = drawing.getBoundingClientRect();
      if (words.some((one) => one.top < edge.top - 1 || one.bottom > edge.bottom + 1)) faults.push("words of a chart are cut off");
    }
    return [...new Set(faults)];
  };
  // Texts, controls and marks that lie over one another, as far as nothing cuts them off.
  const overlapping = () => {
    const shown = (one) => one.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    const cut = (box, one) => {
      // What is left of a box inside all that cuts it off.
      let { left, top, right, bottom } = box;
      for (let around = one; around && around !== document.body; around = around.parentElement) {
        const { overflowX, overflowY, clipPath } = getComputedStyle(around);
        if (clipPath !== "none") return null;
        if (overflowX === "visible" && overflowY === "visible" || around.tagName === "MAIN") continue;
        const edge = around.getBoundingClientRect();
        [left, top] = [Math.max(left, edge.left), Math.max(top, edge.top)];
        [right, bottom] = [Math.min(right, edge.right), Math.min(bottom, edge.bottom)];
      }
      return right - left > 2 && bottom - top > 2 ? { left, top, right, bottom } : null;
    };
    const found = [];
    const add = (box, owner, word, mark = false) => {
      const left = cut(box, owner);
      if (left) found.push({ ...left, owner, word, mark });
    };
    const apart = ".cm-editor *, .js-plotly-plot *, main svg, [aria-roledescription], [role=grid] [role=row], [data-layers]";
    for (const one of document.querySelectorAll("#root *")) {
      if (!shown(one) || one.closest(apart)) continue;
      const { backgroundColor, borderTopWidth } = getComputedStyle(one);
      const painted = backgroundColor !== "rgba(0, 0, 0, 0)" || borderTopWidth !== "0px";
      const leaf = one.childNodes.length === 0 && painted || one.matches(".cm-editor, .js-plotly-plot");
      if (leaf || ["BUTTON", "INPUT", "SELECT", "SVG"].includes(one.tagName.toUpperCase())) add(one.getBoundingClientRect(), one, one.tagName, one.matches("span:empty"));
      for (const text of one.childNodes) {
        if (text.nodeType !== Node.TEXT_NODE || !text.data.trim()) continue;
        const range = document.createRange();
        range.selectNodeContents(text);
        for (const box of range.getClientRects()) add({ left: box.left, top: box.top + 2, right: box.right, bottom: box.bottom - 2 }, one, text.data.trim().slice(0, 40));
      }
    }
    const faults = [];
    for (const [at, one] of found.entries()) {
      for (const other of found.slice(at + 1)) {
        // Marks of one drawing: a value over its interval.
        const drawn = one.mark && other.mark && one.owner.parentElement === other.owner.parentElement;
        const inside = drawn || one.owner.contains(other.owner) || other.owner.contains(one.owner);
        const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
        const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
        if (!inside && wide > 2 && high > 2) faults.push(`${one.word} and ${other.word} overlap`);
      }
    }
    return [...new Set(faults)].slice(0, 5);
  };
  return [...measured(), ...overlapping()];
})();
