// Looks every second whether there is anything new, and then renews the parts that are live.
"use strict";
(() => {
  const LOOK_MS = 1000;
  let version = document.body.dataset.version;

  function renewPart(old, fresh) {
    if (old.outerHTML === fresh.outerHTML) return;
    const selection = document.getSelection();
    if (selection && !selection.isCollapsed && old.contains(selection.anchorNode)) return false;
    const place = old.contains(document.activeElement)
      ? [...old.querySelectorAll("a, button")].indexOf(document.activeElement)
      : -1;
    const scrolled = [...old.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    old.replaceWith(fresh);
    [...fresh.querySelectorAll(".scroll")].forEach((each, i) => { each.scrollLeft = scrolled[i] || 0; });
    if (place >= 0) fresh.querySelectorAll("a, button")[place]?.focus({ preventScroll: true });
    return true;
  }

  async function renew() {
    const answer = await fetch(location.href, { cache: "no-store" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (document.body.dataset.status !== "200" && answer.ok) {
      location.reload();  // What was not there has come.
      return;
    }
    let isWhole = true;
    for (const old of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(old.id);
      // What the new page does not have (the cluster is gone, the broker away) stays as it is.
      if (fresh && renewPart(old, document.adoptNode(fresh)) === false) isWhole = false;
    }
    if (isWhole) version = page.body.dataset.version;
  }

  // As the server writes it; the clocks of broker and browser may differ by a little.
  function age(seconds) {
    if (seconds < 60) return `${Math.floor(seconds)} s`;
    const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60);
    return hours ? `${hours} h ${minutes % 60} min` : `${minutes} min ${Math.floor(seconds % 60)} s`;
  }

  function tick() {
    for (const each of document.querySelectorAll("[data-since]")) {
      each.textContent = age(Math.max(0, Date.now() - Number(each.dataset.since)) / 1000);
    }
  }

  async function look() {
    if (!document.hidden) {
      tick();
      let isThere = true;
      try {
        const answer = await fetch(document.body.dataset.watch, { cache: "no-store" });
        if (answer.ok) {
          const found = await answer.json();
          if (found.version !== version) await renew();
          const shown = document.querySelector("[data-since]");
          if (shown && found.last_ms) shown.dataset.since = found.last_ms;
        }
      } catch {
        isThere = false;
      }
      document.getElementById("gone").hidden = isThere;
    }
    setTimeout(look, LOOK_MS);
  }

  setTimeout(look, LOOK_MS);
})();
